//! SQS and SNS as a test plays them, in their own protocols: JSON for one, forms and XML for the other. For answers that
//! no emulator gives: a part of a request fails, the service is throttled or ill, an answer gets lost.
#![allow(dead_code)] // each test uses a part of it

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use postrider_core::Sink;
use postrider_sinks::{Binding, SinkClient, SnsClient, SnsConfig, SqsClient, SqsConfig};
use serde_json::{Value, json};

use crate::aws::access;
use crate::support::{Received, Reply};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Sqs,
    Sns,
}

pub const BOTH: [Api; 2] = [Api::Sqs, Api::Sns];

/// One message in a request.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    pub id: String,
    pub body: String,
    pub group: Option<String>,
    pub deduplication: Option<String>,
}

/// What becomes of a message in an answer: taken, or its code and whether that is the sender's fault; or left out.
pub type Fate<'a> = Option<Result<(), (&'a str, bool)>>;

impl Api {
    /// A sink of that service at a port, with so much time for a publish.
    pub fn sink(self, port: u16, fifo: bool, limit: Duration) -> Arc<dyn Sink> {
        let end = if fifo { ".fifo" } else { "" };
        match self {
            Self::Sqs => {
                let mut config = SqsConfig::default();
                (config.aws, config.timeout, config.connect_timeout) = (access(port), limit, limit);
                // An address, so that nothing is looked up.
                let destination = format!("http://127.0.0.1:{port}/123456789012/orders{end}");
                let binding = Binding::to(destination.parse().expect("a destination"));
                SqsClient::new(&config).expect("a client").bind(binding).expect("a sink")
            }
            Self::Sns => {
                let mut config = SnsConfig::default();
                (config.aws, config.timeout, config.connect_timeout) = (access(port), limit, limit);
                let destination = format!("arn:aws:sns:eu-central-1:123456789012:orders{end}");
                let binding = Binding::to(destination.parse().expect("a destination"));
                SnsClient::new(&config).expect("a client").bind(binding).expect("a sink")
            }
        }
    }

    /// The messages of a request.
    pub fn sent(self, request: &Received) -> Vec<Sent> {
        match self {
            Self::Sqs => {
                assert_eq!(request.headers["x-amz-target"], "AmazonSQS.SendMessageBatch");
                let body: Value = serde_json::from_slice(&request.body).expect("JSON");
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let entries = body["Entries"].as_array().expect("entries").iter();
                let read = |entry: &Value| Sent {
                    id: text(&entry["Id"]).expect("an id"),
                    body: text(&entry["MessageBody"]).expect("a body"),
                    group: text(&entry["MessageGroupId"]),
                    deduplication: text(&entry["MessageDeduplicationId"]),
                };
                entries.map(read).collect()
            }
            Self::Sns => of_form(&request.body),
        }
    }

    /// An answer to a request, with the fate of each message.
    pub fn answer(self, sent: &[Sent], fates: &[Fate<'_>]) -> Reply {
        let told: Vec<_> = sent.iter().zip(fates).filter_map(|(sent, fate)| Some((&sent.id, fate.as_ref()?))).collect();
        match self {
            Self::Sqs => {
                let good = told.iter().filter(|(_, fate)| fate.is_ok());
                let good: Vec<_> =
                    good.map(|(id, _)| json!({ "Id": id, "MessageId": "m", "MD5OfMessageBody": "x" })).collect();
                let bad = told.iter().filter_map(|(id, fate)| Some((id, fate.err()?)));
                let bad: Vec<_> = bad
                    .map(|(id, (code, fault))| json!({ "Id": id, "Code": code, "SenderFault": fault, "Message": "canary" }))
                    .collect();
                http(200, &json!({ "Successful": good, "Failed": bad }).to_string())
            }
            Self::Sns => {
                let (mut good, mut bad) = (String::new(), String::new());
                for (id, fate) in told {
                    match fate {
                        Ok(()) => good += &format!("<member><Id>{id}</Id><MessageId>m</MessageId></member>"),
                        Err((code, fault)) => {
                            bad += &format!(
                                "<member><Id>{id}</Id><Code>{code}</Code><Message>canary</Message>\
                                 <SenderFault>{fault}</SenderFault></member>"
                            );
                        }
                    }
                }
                let text = format!(
                    "<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishBatchResult>\
                     <Successful>{good}</Successful><Failed>{bad}</Failed></PublishBatchResult>\
                     <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishBatchResponse>"
                );
                http(200, &text)
            }
        }
    }

    /// The same, and every message is taken.
    pub fn take(self, request: &Received) -> Reply {
        let sent = self.sent(request);
        self.answer(&sent, &vec![Some(Ok(())); sent.len()])
    }

    /// A refusal of the whole request.
    pub fn refuse(self, status: u16, code: &str, message: &str) -> Reply {
        match self {
            Self::Sqs => {
                http(status, &json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": message }).to_string())
            }
            Self::Sns => http(
                status,
                &format!(
                    "<ErrorResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><Error><Type>Sender</Type>\
                     <Code>{code}</Code><Message>{message}</Message></Error><RequestId>r</RequestId></ErrorResponse>"
                ),
            ),
        }
    }
}

/// An answer with a body.
pub fn http(status: u16, body: &str) -> Reply {
    let head = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n\r\n", body.len());
    Reply::Bytes([head.as_bytes(), body.as_bytes()].concat())
}

fn of_form(body: &[u8]) -> Vec<Sent> {
    let text = std::str::from_utf8(body).expect("a form");
    assert!(text.contains("Action=PublishBatch&"), "{text}");
    let mut entries: BTreeMap<usize, Sent> = BTreeMap::new();
    for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let Some(rest) = name.strip_prefix("PublishBatchRequestEntries.member.") else { continue };
        let (number, field) = rest.split_once('.').expect("a field of an entry");
        let value = percent_decode_str(&value.replace('+', " ")).decode_utf8().expect("text").into_owned();
        let entry = entries.entry(number.parse().expect("a number")).or_default();
        match field {
            "Id" => entry.id = value,
            "Message" => entry.body = value,
            "MessageGroupId" => entry.group = Some(value),
            "MessageDeduplicationId" => entry.deduplication = Some(value),
            _ => {}
        }
    }
    entries.into_values().collect()
}
