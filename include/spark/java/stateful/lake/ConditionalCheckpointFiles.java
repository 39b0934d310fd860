package stateful.lake;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * A checkpoint on S3: its files come to be whole, and of two drivers that write a batch's offsets
 * or commit exactly one wins.
 *
 * <p>By default Spark writes under another name and renames, which S3 does by copying; its own
 * manager for object stores looks first and writes then.
 */
public final class ConditionalCheckpointFiles extends FileSystemBasedCheckpointFileManager {
  public ConditionalCheckpointFiles(Path path, Configuration conf) {
    super(path, conf);
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    try {
      return new File(
          path, overwriteIfPossible ? fs().create(path, true) : CreatedOnce.open(fs(), path));
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private static final class File extends CancellableFSDataOutputStream {
    private final Path path;
    private final FSDataOutputStream out;
    private boolean isEnded;

    private File(Path path, FSDataOutputStream out) {
      super(out);
      this.path = path;
      this.out = out;
    }

    @Override
    public void close() throws IOException {
      if (isEnded) {
        return;
      }
      isEnded = true;
      try {
        out.close();
      } catch (IOException error) {
        if (CreatedOnce.isTaken(error)) {
          throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(error);
        }
        throw error;
      }
    }

    @Override
    public void cancel() {
      if (!isEnded) {
        isEnded = true;
        out.abort();
      }
    }
  }
}
