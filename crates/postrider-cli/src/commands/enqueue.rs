//! `postrider enqueue`.

use std::io::{BufRead as _, Read as _};
use std::path::Path;
use std::process::ExitCode;

use postrider::{Enqueued, Message, TenantSetting};
use serde_json::json;

use crate::args::Enqueue;
use crate::exit::{Failure, with_causes};
use crate::output::{self, line, messages};
use crate::target::Opened;

/// Lines per transaction.
const BATCH: usize = 500;

pub async fn run(mut enqueue: Enqueue) -> Result<ExitCode, Failure> {
    let opened = enqueue.target.open().await?;
    enqueue.tenant = opened.tenant(enqueue.tenant)?;
    match enqueue.lines {
        true => lines(&enqueue, &opened).await?,
        false => one(&enqueue, &opened).await?,
    }
    Ok(super::done())
}

async fn one(enqueue: &Enqueue, opened: &Opened) -> Result<(), Failure> {
    let payload = match (&enqueue.payload, &enqueue.file) {
        (Some(payload), _) => payload.clone().into_bytes(),
        (None, Some(file)) => read(file)?,
        (None, None) => return Err(Failure::usage("there is no payload")),
    };
    let message = message(enqueue, &payload)?;
    for enqueued in write(enqueue, opened, vec![message]).await? {
        match enqueue.json {
            true => output::json(&json!({ "id": enqueued.id(), "new": enqueued.is_new() }))?,
            false if enqueued.is_new() => line(&enqueued.id().to_string())?,
            false => line(&format!("{} (was there already)", enqueued.id()))?,
        }
    }
    Ok(())
}

async fn lines(enqueue: &Enqueue, opened: &Opened) -> Result<(), Failure> {
    let bar = output::progress(0, "enqueued");
    let mut batch = Vec::with_capacity(BATCH);
    let mut written = 0;
    for (at, text) in std::io::stdin().lock().lines().enumerate() {
        let text = text.map_err(|error| Failure::failed(format!("standard input cannot be read: {error}")))?;
        if text.trim().is_empty() {
            continue;
        }
        let place = |failure: Failure| failure.after(&format!("line {}, after {}: ", at + 1, messages(written)));
        batch.push(message(enqueue, text.as_bytes()).map_err(place)?);
        if batch.len() == BATCH {
            written += write(enqueue, opened, std::mem::take(&mut batch)).await.map_err(place)?.len() as u64;
            bar.set_length(written);
            bar.set_position(written);
        }
    }
    if !batch.is_empty() {
        written += write(enqueue, opened, batch).await?.len() as u64;
    }
    bar.finish_and_clear();
    match enqueue.json {
        true => output::json(&json!({ "enqueued": written })),
        false => line(&format!("enqueued {}", messages(written))),
    }
}

fn message(enqueue: &Enqueue, payload: &[u8]) -> Result<Message, Failure> {
    let (namespace, topic) = (enqueue.namespace.clone(), enqueue.topic.clone());
    let mut message = match &enqueue.content_type {
        Some(content_type) => Message::bytes(namespace, topic, content_type.clone(), payload),
        None => {
            let value: &serde_json::value::RawValue = serde_json::from_slice(payload).map_err(|error| {
                Failure::usage(format!(
                    "the payload is no JSON (line {}, column {}); use --content-type to send it as it is",
                    error.line(),
                    error.column()
                ))
            })?;
            Message::json(namespace, topic, value)
        }
    };
    if let Some(key) = &enqueue.key {
        message = message.key(key.clone());
    }
    if let Some(tenant) = enqueue.tenant {
        message = message.tenant(tenant);
    }
    if let Some(key) = &enqueue.dedupe_key {
        message = message.dedupe_key(key.clone());
    }
    if let Some(delay) = enqueue.delay {
        message = message.deliver_after(delay);
    }
    if let Some(attempts) = enqueue.max_attempts {
        message = message.max_attempts(attempts);
    }
    for (name, value) in &enqueue.headers {
        message = message.header(name.clone(), value.clone());
    }
    Ok(message)
}

/// Writes in a transaction of the tenant, if one is given, because row-level security may be on.
async fn write(enqueue: &Enqueue, opened: &Opened, messages: Vec<Message>) -> Result<Vec<Enqueued>, Failure> {
    let written = match enqueue.tenant {
        Some(tenant) => {
            let setting = TenantSetting::new(&opened.tenant_setting);
            let setting = setting.map_err(|error| Failure::usage(error.to_string()))?;
            opened.store.enqueue_as(tenant, &setting, messages).await
        }
        None => opened.store.enqueue(messages).await,
    };
    written.map_err(|error| Failure::failed(with_causes(&error)))
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(file).map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))
}
