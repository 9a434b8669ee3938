//! A pipe, at whose other end a thread reads lines: what a program gets that reads the relay's standard output.

use std::io::{BufRead as _, BufReader, PipeReader};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use async_trait::async_trait;
use postrider_sinks::{StdoutConfig, StdoutSink};

use super::{Described, Destination, Place, Reader};
use crate::bench::ledger::Ledger;

/// The payload is the last field of a line.
const PAYLOAD: &[u8] = b"\"payload\":";

pub struct Pipe;

#[async_trait]
impl Destination for Pipe {
    fn describe(&self) -> Described {
        Described { what: "a pipe that a thread reads".into(), counted_there: true }
    }

    async fn place(&self, arrivals: &Arc<Ledger>) -> Result<Place> {
        let (reader, writer) = std::io::pipe().context("there is no pipe")?;
        let arrivals = arrivals.clone();
        let thread = std::thread::spawn(move || note_lines(reader, &arrivals));
        let sink = Arc::new(StdoutSink::with_writer(&StdoutConfig::default(), writer));
        Ok(Place::new(sink, Lines { thread: Some(thread) }))
    }
}

fn note_lines(reader: PipeReader, arrivals: &Ledger) -> std::io::Result<()> {
    let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        let at = line.windows(PAYLOAD.len()).position(|window| window == PAYLOAD);
        arrivals.note(at.map_or(&[], |at| &line[at + PAYLOAD.len()..]));
        line.clear();
    }
    Ok(())
}

/// Ends with the pipe, which ends with the sink.
struct Lines {
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

#[async_trait]
impl Reader for Lines {
    async fn read(&mut self, _: &Ledger) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        Ok(ended.map_err(|_| anyhow!("the reader panicked"))??)
    }
}
