package stateful.lake;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local files, without a process for each.
 *
 * <p>Where Hadoop's native library is missing, as in the package pyspark, it runs {@code chmod} for
 * each file that it makes and {@code readlink} for each name of a rename. Java can do both.
 */
public final class RawForklessFileSystem extends RawLocalFileSystem {
  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    if (permission.getStickyBit()) { // Java has no name for it
      super.setPermission(path, permission);
      return;
    }
    String letters =
        permission.getUserAction().SYMBOL
            + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
    Files.setPosixFilePermissions(
        pathToFile(path).toPath(), PosixFilePermissions.fromString(letters));
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
    return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
  }
}
