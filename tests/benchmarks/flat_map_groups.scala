// Scala's flatMapGroupsWithState on the benchmark's files, one batch a file.
// tests.benchmarks.bench feeds this to spark-shell's standard input, so a statement that
// goes on must end its line with a dot or stand in braces. Prints one line of JSON.
import java.sql.Timestamp
import org.apache.spark.sql.{DataFrame, Observation}
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode, Trigger}

case class Event(user_id: String, event_time: Timestamp)
case class Typed(user_id: String, event_time: Timestamp, event_type: String)
case class Sale(user_id: String, event_time: Timestamp, price: Long)

def micros(at: Timestamp): Long = at.getTime / 1000 * 1000000L + at.getNanos / 1000

case class Total(total_count: Long)
case class UserCount(user_id: String, total_count: Long)

def countUser(user: String, events: Iterator[Event], state: GroupState[Total]): Iterator[UserCount] = {
  val total = state.getOption.map(_.total_count).getOrElse(0L) + events.size
  state.update(Total(total))
  Iterator(UserCount(user, total))
}

case class OpenSession(started_us: Long, last_us: Long, events: Long)
case class UserSession(user_id: String, started_us: Long, ended_us: Long, events: Long)
val gapUs = 600L * 1000000

def sessions(user: String, events: Iterator[Event], state: GroupState[OpenSession]): Iterator[UserSession] = {
  val closed = scala.collection.mutable.ArrayBuffer[UserSession]()
  def close(open: OpenSession): Unit = closed += UserSession(user, open.started_us, open.last_us, open.events)
  if (state.hasTimedOut) { close(state.get); state.remove() }
  else {
    var open = state.getOption
    events.map(e => micros(e.event_time)).toArray.sorted.foreach { now =>
      if (open.exists(now - _.last_us >= gapUs)) { close(open.get); open = None }
      open = Some(OpenSession(open.map(_.started_us).getOrElse(now), now, open.map(_.events).getOrElse(0L) + 1))
    }
    state.update(open.get)
    state.setTimeoutTimestamp((open.get.last_us + gapUs) / 1000)
  }
  closed.iterator
}

case class Day(day: Long, events: Long, least: Long, most: Long, total: Long)
case class DayRow(user_id: String, day: Long, events: Long, least: Long, most: Long, total: Long)

def ofTheDay(user: String, sales: Iterator[Sale], state: GroupState[Day]): Iterator[DayRow] = {
  var known = state.getOption
  sales.toArray.sortBy(s => micros(s.event_time)).foreach { sale =>
    val day = micros(sale.event_time) / 86400000000L
    val last = known.filter(_.day == day).getOrElse(Day(day, 0, sale.price, sale.price, 0))
    known = Some(Day(day, last.events + 1, last.least min sale.price, last.most max sale.price, last.total + sale.price))
  }
  val now = known.get
  state.update(now)
  Iterator(DayRow(user, now.day, now.events, now.least, now.most, now.total))
}

case class Last(at_us: Long, price: Long)
case class LastRow(user_id: String, at_us: Long, price: Long)

def lastOf(user: String, sales: Iterator[Sale], state: GroupState[Last]): Iterator[LastRow] = {
  val newest = sales.maxBy(s => micros(s.event_time))
  val at = micros(newest.event_time)
  if (!state.exists || state.get.at_us <= at) state.update(Last(at, newest.price))
  Iterator(LastRow(user, state.get.at_us, state.get.price))
}

case class Recent(times_us: Seq[Long])
case class Alert(user_id: String, at_us: Long)
val spanUs = 600L * 1000000
val limit = 2

def alerts(user: String, events: Iterator[Typed], state: GroupState[Recent]): Iterator[Alert] = {
  val raised = scala.collection.mutable.ArrayBuffer[Alert]()
  if (state.hasTimedOut) state.remove()
  else {
    var recent = state.getOption.map(_.times_us).getOrElse(Seq.empty[Long])
    events.filter(_.event_type == "purchase").map(e => micros(e.event_time)).toArray.sorted.foreach { now =>
      recent = recent.filter(_ > now - spanUs)
      if (recent.size == limit) raised += Alert(user, now)
      recent = (recent :+ now).takeRight(limit + 1)
    }
    if (recent.nonEmpty) {
      state.update(Recent(recent))
      state.setTimeoutTimestamp(((recent.last + spanUs) / 1000) max (state.getCurrentWatermarkMs() + 1))
    }
  }
  raised.iterator
}

val files = sys.env("BENCH_FILES")
val checkpoint = sys.env("BENCH_CHECKPOINT")
val workload = sys.env("BENCH_WORKLOAD")
val schema = spark.read.parquet(files).schema
val rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(files)
def timed(columns: String*): DataFrame = rows.select(columns.head, columns.tail: _*).withWatermark("event_time", "10 minutes")
val (update, append) = (OutputMode.Update, OutputMode.Append)
val (never, later) = (GroupStateTimeout.NoTimeout, GroupStateTimeout.EventTimeTimeout)

def folded: DataFrame = workload match {
  case "counts" => rows.select("user_id", "event_time").as[Event].groupByKey(_.user_id).flatMapGroupsWithState(update, never)(countUser).toDF
  case "sessions" => timed("user_id", "event_time").as[Event].groupByKey(_.user_id).flatMapGroupsWithState(append, later)(sessions).toDF
  case "days" => rows.select("user_id", "event_time", "price").as[Sale].groupByKey(_.user_id).flatMapGroupsWithState(update, never)(ofTheDay).toDF
  case "last" => rows.select("user_id", "event_time", "price").as[Sale].groupByKey(_.user_id).flatMapGroupsWithState(update, never)(lastOf).toDF
  case "alerts" => timed("user_id", "event_time", "event_type").as[Typed].groupByKey(_.user_id).flatMapGroupsWithState(append, later)(alerts).toDF
}
// Of what counts its outputs, how many there were; and the number that its states come to.
val countsOutputs = Set("sessions", "alerts").contains(workload)
val ofStates = Map("counts" -> "sum(value.groupState.total_count)", "sessions" -> "count(*)", "alerts" -> "0L", "last" -> "sum(value.groupState.price)", "days" -> "sum(value.groupState.events * 31 + value.groupState.least * 7 + value.groupState.most * 3 + value.groupState.total)")
var outputs = 0L
def consume(frame: DataFrame, id: Long): Unit = {
  if (countsOutputs) {
    val observed = Observation()
    frame.observe(observed, count(lit(1)).as("rows")).write.format("noop").mode("overwrite").save()
    outputs += observed.get("rows").asInstanceOf[Long]
  } else frame.write.format("noop").mode("overwrite").save()
}
val mode = if (countsOutputs) "append" else "update"
val query = folded.writeStream.outputMode(mode).foreachBatch(consume _).
  option("checkpointLocation", checkpoint).trigger(Trigger.AvailableNow()).start()
query.awaitTermination()
val batches = query.recentProgress.filter(_.numInputRows > 0)
val seconds = batches.map(_.durationMs.get("triggerExecution") / 1000.0).mkString(", ")
spark.streams.active
val states = spark.read.format("statestore").load(checkpoint).selectExpr(s"coalesce(${ofStates(workload)}, 0L)").head.getLong(0)
println(s"""\n{"seconds": [$seconds], "state_files_bytes": [], "waiting": 0, "result": ${states + outputs}}""")
System.exit(0)
