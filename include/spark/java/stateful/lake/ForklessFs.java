package stateful.lake;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FsConstants;

/** The same as checkpoints are written ({@code fs.AbstractFileSystem.file.impl}): Hadoop's LocalFs. */
public final class ForklessFs extends ChecksumFs {
  public ForklessFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(new Raw(conf));
  }

  /** As Hadoop's RawLocalFs, which only its own package can extend. */
  private static final class Raw extends DelegateToFileSystem {
    private Raw(Configuration conf) throws IOException, URISyntaxException {
      super(FsConstants.LOCAL_FS_URI, new RawForklessFileSystem(), conf, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1; // none
    }

    @Override
    public boolean isValidName(String name) {
      return true; // whatever the file system takes
    }
  }
}
