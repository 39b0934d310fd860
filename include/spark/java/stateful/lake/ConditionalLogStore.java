package stateful.lake;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * A Delta log on S3 that any number of drivers, and delta-rs, may commit to at once.
 *
 * <p>Delta's own store for S3 keeps only the writers of one JVM apart.
 */
public final class ConditionalLogStore extends S3SingleDriverLogStore {
  public ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
      throws IOException {
    FileSystem fs = path.getFileSystem(conf);
    byte[] content = lines(actions);
    if (overwrite) {
      CreatedOnce.write(fs.create(path, true), content);
      return;
    }
    try {
      CreatedOnce.write(CreatedOnce.open(fs, path), content);
    } catch (IOException error) {
      // Of a commit whose answer was lost the client's second try finds its own file there: each
      // has an id of its own, so equal bytes are of one writer.
      byte[] found = readIfThere(fs, path);
      if (found == null) {
        throw error;
      }
      if (!Arrays.equals(found, content)) {
        throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(error);
      }
    }
  }

  private static byte[] lines(Iterator<String> actions) {
    StringBuilder text = new StringBuilder();
    while (actions.hasNext()) {
      text.append(actions.next()).append('\n');
    }
    return text.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static byte[] readIfThere(FileSystem fs, Path path) throws IOException {
    FSDataInputStream in;
    try {
      in = fs.open(path);
    } catch (FileNotFoundException notThere) {
      return null;
    }
    byte[] content;
    try (in) {
      content = in.readAllBytes();
    }
    return content;
  }
}
