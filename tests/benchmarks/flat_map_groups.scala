// Scala's flatMapGroupsWithState on the benchmark's files, one batch a file.
// tests.benchmarks.bench feeds this to spark-shell's standard input, so a statement that
// goes on must end its line with a dot. Prints one line of JSON.
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode, Trigger}

case class Event(user_id: String, event_time: java.sql.Timestamp)
case class Total(total_count: Long)
case class UserCount(user_id: String, total_count: Long)

def countUser(user: String, events: Iterator[Event], state: GroupState[Total]): Iterator[UserCount] = {
  val total = state.getOption.map(_.total_count).getOrElse(0L) + events.size
  state.update(Total(total))
  Iterator(UserCount(user, total))
}

val files = sys.env("BENCH_FILES")
val checkpoint = sys.env("BENCH_CHECKPOINT")
val schema = spark.read.parquet(files).schema
val events = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(files).
  select("user_id", "event_time").as[Event]
val counted = events.groupByKey(_.user_id).
  flatMapGroupsWithState(OutputMode.Update, GroupStateTimeout.NoTimeout)(countUser)
def consume(frame: Dataset[UserCount], id: Long): Unit = frame.write.format("noop").mode("overwrite").save()
val query = counted.writeStream.outputMode("update").foreachBatch(consume _).
  option("checkpointLocation", checkpoint).trigger(Trigger.AvailableNow()).start()
query.awaitTermination()
val batches = query.recentProgress.filter(_.numInputRows > 0)
val seconds = batches.map(_.durationMs.get("triggerExecution") / 1000.0).mkString(", ")
spark.streams.active
val total = spark.read.format("statestore").load(checkpoint).selectExpr("sum(value.groupState.total_count)").head.getLong(0)
println(s"""\n{"seconds": [$seconds], "state_files_bytes": [], "counted": $total}""")
System.exit(0)
