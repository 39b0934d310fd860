package stateful.lake;

import java.io.IOException;
import java.nio.file.Files;
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
  private static final String MODE = "unix:mode";
  private static final int SET_IDS = 06000;

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    java.nio.file.Path file = pathToFile(path).toPath();
    int mode = permission.toShort();
    if (Files.isDirectory(file)) { // a folder keeps the group that it hands down, as by chmod
      mode |= ((Integer) Files.getAttribute(file, MODE)).intValue() & SET_IDS;
    }
    Files.setAttribute(file, MODE, Integer.valueOf(mode));
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
    return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
  }
}
