//! A sender of `copy` that says what it is told to, one message after the other.

use std::time::Duration;

use cm::{Connection, ConnectionOptions};
use serde_json::{Value, json};
use verbs::{AccessFlags, ReceiveRequest, RemoteSlice, SendRequest, WorkCompletion};

use crate::programs::LIMIT;

pub(crate) const START: &str = r#"{"Start":{"files":1,"bytes":5,"skipped":0}}"#;
pub(crate) const FILE: &str = r#"{"File":{"path":[102],"size":5}}"#;
pub(crate) const FROM: &str = r#"{"From":{"offset":0}}"#;
pub(crate) const SHORT_END: &str = r#"{"End":{"length":0,"digest":[0,0],"mode":420}}"#;

const CHUNK: u64 = 1 << 16;
const REPLY: usize = 8 << 10;
const SLOTS: u64 = 4;

struct Sender {
    connection: Connection,
    /// Where the receiver's replies come to.
    replies: verbs::MemoryRegion<Vec<u8>>,
    /// The receiver's ring.
    remote: RemoteSlice,
    sent: u64,
}

impl Sender {
    fn connect(address: &str) -> Self {
        let mut options = ConnectionOptions::default();
        options.access = AccessFlags::REMOTE_WRITE;
        let mut prepared = options.prepare(address).unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let replies = prepared.protection_domain().register(vec![0; REPLY * SLOTS as usize], access).unwrap();
        for _ in 0..SLOTS {
            prepared.queue_pair().post_receive(&ReceiveRequest::new(0, &[])).unwrap();
        }
        let memory = replies.remote_slice(..).unwrap();
        let mut offer = b"rdcopy02".to_vec();
        for number in [CHUNK, SLOTS, memory.address(), memory.len()] {
            offer.extend(number.to_be_bytes());
        }
        offer.extend(memory.rkey().to_be_bytes());
        prepared.options_mut().private_data = offer;
        let connection = prepared.connect().unwrap();
        let data = connection.private_data()[8..].to_vec();
        let number = |index: usize| u64::from_be_bytes(data[index * 8..][..8].try_into().unwrap());
        let rkey = u32::from_be_bytes(data[32..36].try_into().unwrap());
        let remote = RemoteSlice::new(number(2), number(3), rkey).unwrap();
        Self { connection, replies, remote, sent: 0 }
    }

    /// Sends a message, and waits for its reply.
    fn ask(&mut self, message: &[u8], is_chunk: bool) -> Value {
        let region = self.connection.protection_domain().register(message.to_vec(), AccessFlags::empty()).unwrap();
        let slot = (self.sent % SLOTS) as usize;
        let start = slot * CHUNK as usize;
        let to = self.remote.slice(start..start + message.len()).unwrap();
        let imm_data = u32::from(is_chunk) << 31 | message.len() as u32;
        let from = [region.slice(..).unwrap()];
        let qp = self.connection.queue_pair();
        qp.post_send(&SendRequest::rdma_write_with_imm(1, &from, to, imm_data).signaled()).unwrap();
        self.sent += 1;
        let mut length = None;
        let mut is_sent = false;
        while !(is_sent && length.is_some()) {
            let mut completions = [WorkCompletion::default()];
            let found = self.connection.completion_queue().wait(&mut completions, Some(LIMIT)).unwrap();
            let done = found.first().expect("the receiver does not answer").success().unwrap();
            match done.wr_id() {
                1 => is_sent = true,
                _ => length = done.imm_data(),
            }
        }
        qp.post_receive(&ReceiveRequest::new(0, &[])).unwrap();
        let reply = self.replies.to_vec(slot * REPLY..slot * REPLY + length.unwrap() as usize).unwrap();
        serde_json::from_slice(&reply).unwrap()
    }

    fn request(&mut self, request: &str) -> Value {
        self.ask(request.as_bytes(), false)
    }

    /// Waits for the receiver to give up, and hangs up.
    fn refusal(self, reply: &Value) -> String {
        let reason = reply["Failed"]["reason"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
        self.connection.disconnect().unwrap();
        self.connection.wait_disconnected(Some(Duration::from_secs(60))).unwrap();
        reason
    }
}

/// Says all of these, of which the receiver has to refuse the last one; why it does.
pub(crate) fn refused(address: &str, requests: &[&str]) -> String {
    let mut sender = Sender::connect(address);
    let (last, others) = requests.split_last().unwrap();
    for request in others {
        let reply = sender.request(request);
        assert!(reply == "Done" || reply.get("Have").is_some(), "{request}: {reply}");
    }
    let reply = sender.request(last);
    sender.refusal(&reply)
}

/// Sends a file, but the checksum of another one; why the receiver refuses it.
pub(crate) fn send(address: &str, name: &[u8], content: &[u8]) -> String {
    let mut sender = Sender::connect(address);
    let size = content.len();
    for request in [
        json!({"Start": {"files": 1, "bytes": size, "skipped": 0}}),
        json!({"File": {"path": name, "size": size}}),
        json!({"From": {"offset": 0}}),
    ] {
        let reply = sender.request(&request.to_string());
        assert!(reply == "Done" || reply.get("Have").is_some(), "{request}: {reply}");
    }
    for chunk in content.chunks(CHUNK as usize) {
        assert_eq!(sender.ask(chunk, true), "Done");
    }
    let end = json!({"End": {"length": size, "digest": [1, 2], "mode": 0o644}});
    let reply = sender.request(&end.to_string());
    sender.refusal(&reply)
}
