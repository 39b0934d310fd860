package stateful.lake;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;

/**
 * Files that come to be when they are closed, and of whose writers exactly one wins.
 *
 * <p>By the store's own condition (If-None-Match). Plain create(path, overwrite = false) looks
 * first and writes then: of two writers both win (Hadoop 3.5.0).
 */
final class CreatedOnce {
  // Of the connector, which only a lake on S3 has: these classes are compiled without it.
  private static final String CHANGED = "org.apache.hadoop.fs.s3a.RemoteFileChangedException";

  private CreatedOnce() {}

  static FSDataOutputStream open(FileSystem fs, Path path) throws IOException {
    FSDataOutputStreamBuilder<?, ?> file = fs.createFile(path);
    file.must(CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true);
    return (FSDataOutputStream) file.build(); // Janino infers no more
  }

  /** Whether closing failed for another's file of that name, which is whole and stays. */
  static boolean isTaken(IOException error) {
    return error.getClass().getName().equals(CHANGED)
        || error instanceof org.apache.hadoop.fs.FileAlreadyExistsException;
  }

  static void write(OutputStream out, byte[] content) throws IOException {
    try (out) {
      out.write(content);
    }
  }
}
