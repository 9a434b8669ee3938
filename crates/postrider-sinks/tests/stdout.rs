//! The sink stdout: whole lines, flushed before they count, and no panic when the reader is gone.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use postrider_core::{ClaimedMessage, Lease, Outcome, Payload, RowAddress, Sink};
use postrider_sinks::{StdoutConfig, StdoutSink};
use serde_json::{Value, json};
use uuid::Uuid;

/// Keeps what is written, in small pieces, and what of it was flushed; fails after so many bytes.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Sheet>>);

#[derive(Default)]
struct Sheet {
    written: Vec<u8>,
    flushed: usize,
    fail_after: Option<(usize, io::ErrorKind)>,
}

impl Paper {
    fn sheet(&self) -> std::sync::MutexGuard<'_, Sheet> {
        self.0.lock().expect("not poisoned")
    }

    fn ends(&self) -> (usize, usize) {
        let sheet = self.sheet();
        (sheet.flushed, sheet.written.len())
    }

    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.sheet().written.clone()).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sheet = self.sheet();
        let mut room = bytes.len().min(7);
        if let Some((left, kind)) = &mut sheet.fail_after {
            if *left == 0 {
                return Err((*kind).into());
            }
            room = room.min(*left);
            *left -= room;
        }
        sheet.written.extend_from_slice(&bytes[..room]);
        drop(sheet);
        std::thread::yield_now();
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sheet = self.sheet();
        sheet.flushed = sheet.written.len();
        Ok(())
    }
}

fn message(topic: &str, payload: Payload) -> ClaimedMessage {
    let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 2, address: RowAddress::default() };
    let mut message = ClaimedMessage::new(lease, "shop\n1".into(), topic.into(), payload);
    message.created_at_micros = 1_700_000_000_123_456;
    message
}

fn sink(paper: &Paper) -> StdoutSink {
    StdoutSink::with_writer(&StdoutConfig::default(), paper.clone())
}

#[tokio::test]
async fn a_line_holds_all_of_a_message() {
    let paper = Paper::default();
    let mut first = message("order\r\n{placed}", Payload::Json("{\n  \"n\": 1.0e2,\r\n  \"ä\": \"\\n\"\n}".into()));
    first.key = Some("k".into());
    first.tenant_id = Some(Uuid::nil());
    first.dedupe_key = Some("d".into());
    let headers = [("traceparent", "00-a"), ("tracestate", "b"), ("postrider-replayed", "1"), ("x", "y\n")];
    first.headers.extend(headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut second = message("photo", Payload::Bytes(vec![0, 255]));
    second.headers.insert("content-type".into(), "image/png".into());
    let broken = message("broken", Payload::Json("{".into()));
    let outcomes = sink(&paper).publish(&[first.clone(), broken, second.clone()]).await;
    assert_eq!(outcomes, [Outcome::Accepted, Outcome::Unsendable("its payload is not JSON".into()), Outcome::Accepted]);
    let (flushed, written) = paper.ends();
    assert_eq!(flushed, written, "flushed before it counts");
    let expected = json!({
        "event_id": first.id, "event_type": "order\r\n{placed}", "namespace": "shop\n1", "topic": "order\r\n{placed}", "key": "k", "tenant_id": Uuid::nil(),
        "dedupe_key": "d", "attempt": 2, "created_at": "2023-11-14T22:13:20.123456Z", "replayed": 1, "traceparent": "00-a",
        "tracestate": "b", "content_type": "application/json", "headers": {"x": "y\n"}, "payload": {"n": 1.0e2, "ä": "\n"},
    });
    let bytes = json!({
        "event_id": second.id, "event_type": "photo", "namespace": "shop\n1", "topic": "photo", "attempt": 2, "content_type": "image/png", "headers": {},
        "created_at": "2023-11-14T22:13:20.123456Z", "payload_base64": "AP8=",
    });
    assert_eq!(paper.lines(), [expected, bytes]);
    assert!(String::from_utf8_lossy(&paper.sheet().written).contains("1.0e2"), "numbers are not touched");
}

#[tokio::test]
async fn s17_payload_and_headers_can_be_left_out() {
    let paper = Paper::default();
    let mut config = StdoutConfig::default();
    config.payload = false;
    let mut message = message("t", Payload::Json("\"canary\"".into()));
    message.headers.insert("x".into(), "canary".into());
    assert_eq!(StdoutSink::with_writer(&config, paper.clone()).publish(&[message]).await, [Outcome::Accepted]);
    assert!(!String::from_utf8_lossy(&paper.sheet().written).contains("canary"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lines_are_whole_with_many_callers() {
    let paper = Paper::default();
    let sink = Arc::new(sink(&paper));
    assert_eq!(sink.max_batch(), 100);
    let calls = (0..32).map(|call| {
        let sink = sink.clone();
        tokio::spawn(async move {
            let batch: Vec<_> =
                (0..20).map(|at| message(&format!("{call}.{at}"), Payload::Json("\"x\"".into()))).collect();
            sink.publish(&batch).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.expect("no panic"), vec![Outcome::Accepted; 20]);
    }
    let mut topics: Vec<String> = paper.lines().iter().map(|line| line["topic"].to_string()).collect();
    topics.sort();
    topics.dedup();
    assert_eq!(topics.len(), 32 * 20);
}

#[tokio::test]
async fn a_closed_pipe_is_a_retry_and_the_sink_is_not_ready_any_more() {
    let paper = Paper::default();
    paper.sheet().fail_after = Some((10, io::ErrorKind::BrokenPipe));
    let sink = sink(&paper);
    assert_eq!(sink.ready().await, Ok(()));
    let batch = [message("a", Payload::Json("1".into())), message("b", Payload::Json("1".into()))];
    for outcome in sink.publish(&batch).await {
        assert!(matches!(&outcome, Outcome::Retry { why, .. } if why.contains("closed")), "{outcome:?}");
    }
    assert!(sink.ready().await.expect_err("closed").contains("closed"));
}

#[tokio::test]
async fn a_line_that_was_cut_does_not_spoil_the_next_one() {
    let paper = Paper::default();
    let first = message("a", Payload::Json("1".into()));
    let sink = sink(&paper);
    assert_eq!(sink.publish(std::slice::from_ref(&first)).await, [Outcome::Accepted]);
    let one = paper.sheet().written.len();
    paper.sheet().fail_after = Some((one + 10, io::ErrorKind::StorageFull));
    let batch = [first.clone(), first.clone(), first.clone()];
    let kinds: Vec<_> = sink.publish(&batch).await.iter().map(Outcome::kind).collect();
    assert_eq!(kinds, ["unknown", "unknown", "retry"]);
    assert_eq!(sink.ready().await, Ok(()), "a full disk may have room again");
    paper.sheet().fail_after = None;
    assert_eq!(sink.publish(&[first]).await, [Outcome::Accepted]);
    let text = String::from_utf8(paper.sheet().written.clone()).expect("text");
    let whole = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert_eq!((whole, text.lines().count()), (3, 4), "{text}");
}

/// With a real pipe whose reader is gone.
#[tokio::test]
async fn a_real_pipe_without_a_reader_ends_nothing() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let sink = StdoutSink::with_writer(&StdoutConfig::default(), writer);
    assert_eq!(sink.publish(&[message("a", Payload::Json("1".into()))]).await[0].kind(), "retry");
    assert!(sink.ready().await.is_err());
}
