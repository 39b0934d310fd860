import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import stateful.lake.ConditionalLogStore;

/** Commits numbered transactions to a Delta log, as Spark's Delta does it: next version, or the one after. */
public class LogDriver {
  public static void main(String[] args) throws Exception {
    String table = args[0];
    String name = args[1];
    int count = Integer.parseInt(args[2]);
    int next = Integer.parseInt(args[3]);
    Configuration conf = new Configuration();
    conf.set("fs.s3a.endpoint", System.getenv("AWS_ENDPOINT_URL"));
    conf.set("fs.s3a.endpoint.region", System.getenv("AWS_REGION"));
    conf.set("fs.s3a.path.style.access", "true");
    ConditionalLogStore store = new ConditionalLogStore(conf);
    long version = newest(store, table, conf) + 1;
    while (next <= count) {
      String txn = "{\"txn\":{\"appId\":\"" + name + "\",\"version\":" + next + "}}";
      String info = "{\"commitInfo\":{\"txnId\":\"" + UUID.randomUUID() + "\"}}";
      Path path = new Path(table, String.format("_delta_log/%020d.json", version++));
      try {
        store.write(path, List.of(info, txn).iterator(), false, conf);
        next++;
      } catch (FileAlreadyExistsException taken) {
        // By a process of our name that was killed with its put on the way?
        try (var lines = store.read(path, conf)) {
          while (lines.hasNext()) {
            if (lines.next().equals(txn)) {
              next++;
            }
          }
        }
      }
    }
    System.exit(0);
  }

  private static long newest(ConditionalLogStore store, String table, Configuration conf)
      throws Exception {
    Iterator<FileStatus> files =
        store.listFrom(new Path(table, String.format("_delta_log/%020d.json", 0)), conf);
    long newest = 0;
    while (files.hasNext()) {
      String file = files.next().getPath().getName();
      if (file.matches("\\d{20}\\.json")) {
        newest = Math.max(newest, Long.parseLong(file.substring(0, 20)));
      }
    }
    return newest;
  }
}
