//! The programs that are compiled.

use std::fs;
use std::path::Path;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) code: String,
    /// The code of the error that the documentation names.
    pub(crate) expected: String,
}

/// The operations, and the transports that have them.
const OPERATIONS: [(&str, &str, &[&str]); 22] = [
    ("SEND", "SendRequest::send(1, slices)", &["Rc", "Uc"]),
    ("SEND with immediate", "SendRequest::send_with_imm(1, slices, 2)", &["Rc", "Uc"]),
    ("SEND inline", "SendRequest::send_inline(1, inline)", &["Rc", "Uc"]),
    ("SEND with invalidate", "SendRequest::send_with_invalidate(1, slices, 2)", &["Rc"]),
    ("RDMA WRITE", "SendRequest::rdma_write(1, slices, remote)", &["Rc", "Uc"]),
    ("RDMA WRITE with immediate", "SendRequest::rdma_write_with_imm(1, slices, remote, 2)", &["Rc", "Uc"]),
    ("RDMA WRITE inline", "SendRequest::rdma_write_inline(1, inline, remote)", &["Rc", "Uc"]),
    ("RDMA READ", "SendRequest::rdma_read(1, slices, remote)", &["Rc"]),
    ("compare-and-swap", "SendRequest::compare_and_swap(1, slices, remote, 2, 3)", &["Rc"]),
    ("fetch-and-add", "SendRequest::fetch_and_add(1, slices, remote, 2)", &["Rc"]),
    ("SEND to a destination", "SendRequest::send_to(1, slices, ah, 2, 3)", &["Ud"]),
    ("SEND with immediate to a destination", "SendRequest::send_to_with_imm(1, slices, ah, 2, 3, 4)", &["Ud"]),
    ("SEND inline to a destination", "SendRequest::send_to_inline(1, inline, ah, 2, 3)", &["Ud"]),
    ("a prepared SEND", "PreparedSend::send(1, [held])", &["Rc", "Uc"]),
    ("a prepared RDMA WRITE", "PreparedSend::rdma_write(1, [held], remote)", &["Rc", "Uc"]),
    ("a prepared RDMA READ", "PreparedSend::rdma_read(1, [held], remote)", &["Rc"]),
    ("a prepared fetch-and-add", "PreparedAtomic::fetch_and_add(1, [held], remote, 2)?", &["Rc"]),
    ("a prepared SEND to a destination", "PreparedSend::send_to(1, [held], ah, 2, 3)", &["Ud"]),
    ("atomic write", "AtomicWriteRequest::new(1, remote, [0; 8])", &["Rc"]),
    ("binding of a memory window", "BindRequest", &["Rc", "Uc"]),
    ("connecting", "connect", &["Rc", "Uc"]),
    ("joining a multicast group", "attach_multicast", &["Ud"]),
];

const TRANSPORTS: [&str; 3] = ["Rc", "Uc", "Ud"];

/// Each operation on each transport.
pub(crate) fn operations() -> Vec<Case> {
    let mut cases = Vec::new();
    for (operation, request, _) in OPERATIONS {
        let statement = match request {
            "BindRequest" => "qp.post_bind(window, bind)?;".to_owned(),
            "connect" => "qp.connect(local, &local.endpoint, &ConnectOptions::default())?;".to_owned(),
            "attach_multicast" => "qp.attach_multicast(group, 0)?;".to_owned(),
            request if request.starts_with("Prepared") => format!("qp.post_prepared_send(&{request})?;"),
            request if request.starts_with("AtomicWrite") => {
                format!("if let Some(qp) = qp.extended() {{ qp.post_atomic_write(&{request})?; }}")
            }
            request => format!("qp.post_send(&{request})?;"),
        };
        for transport in TRANSPORTS {
            let code = format!(
                "#![allow(unused)]
                use verbs::*;
                fn example(
                    qp: &QueuePair<{transport}>, slices: &[LocalSlice<'_>], inline: &[InlineSlice<'_>], remote: RemoteSlice,
                    ah: &AddressHandle, held: HeldSlice, window: &mut MemoryWindow<WindowType2>, bind: &BindRequest,
                    local: &LocalEndpoint, group: Gid,
                ) -> Result<()> {{ {statement} Ok(()) }}
                fn main() {{}}"
            );
            cases.push(Case { name: format!("on {transport}, {operation}"), code, expected: String::new() });
        }
    }
    cases
}

/// Whether the transport of a case of [`operations`] has the operation.
pub(crate) fn is_allowed(case: &str) -> bool {
    let (transport, operation) = case.trim_start_matches("on ").split_once(", ").unwrap();
    OPERATIONS.iter().any(|(name, _, allowed)| *name == operation && allowed.contains(&transport))
}

/// The examples in the documentation that are not to compile, numbered in each file.
pub(crate) fn documented() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(root.join(&file)).unwrap();
        let mut lines =
            text.lines().map(|line| line.trim_start().trim_start_matches("///").trim_start_matches("//!").trim());
        let mut number = 0;
        while let Some(line) = lines.next() {
            let Some(expected) = line.strip_prefix("```compile_fail,") else { continue };
            number += 1;
            let body: Vec<_> = lines.by_ref().take_while(|line| *line != "```").map(shown).collect();
            let code = format!("#![allow(unused)]\nfn main() {{\n{}\n}}", body.join("\n"));
            cases.push(Case { name: format!("{file} {number}"), code, expected: expected.to_owned() });
        }
    }
    cases
}

/// A line of an example, hidden or not.
fn shown(line: &str) -> &str {
    line.strip_prefix("# ").unwrap_or(line)
}

fn sources(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else {
            files.push(path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_string_lossy().into_owned());
        }
    }
}
