package stateful.lake;

import org.apache.hadoop.fs.LocalFileSystem;

/** Local files with checksums as Delta's logs and tables are written ({@code fs.file.impl}). */
public final class ForklessFileSystem extends LocalFileSystem {
  public ForklessFileSystem() {
    super(new RawForklessFileSystem());
  }
}
