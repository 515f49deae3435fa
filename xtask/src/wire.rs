//! What the host and the agent in the guest say to each other, over one virtio-serial port.
//!
//! Both ends are the same build of this program, so a frame is as simple as can be: a kind, a program's number, a length, and the
//! bytes, which are output as it is or a JSON value.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::process::{Event, Outcome, Program, Stream};

/// Longest payload that is believed: anything above it is not a frame.
const LONGEST: u32 = 64 << 20;

/// Host to guest.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Comes first: how the guest is to be furnished.
    Furnish(Furniture),
    Start {
        id: u32,
        program: Program,
    },
    /// Standard input; no bytes close it.
    Feed {
        id: u32,
        bytes: Vec<u8>,
    },
    Resize {
        id: u32,
        rows: u16,
        columns: u16,
    },
    Signal {
        id: u32,
        signal: i32,
    },
    PowerOff,
}

/// How the guest differs from the host's root that it sees.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Furniture {
    /// The folder that the host shares for writing, at its host path.
    pub(crate) writable: PathBuf,
}

/// Guest to host.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// The device is there and programs can be started.
    Ready,
    /// The guest cannot be furnished; it switches itself off.
    Broken(String),
    Program(Event),
}

/// Writes one order.
///
/// # Errors
///
/// The port is gone.
pub(crate) fn send(to: &mut impl Write, order: &Order) -> io::Result<()> {
    match order {
        Order::Furnish(furniture) => frame(to, b'F', 0, &json(furniture)?),
        Order::Start { id, program } => frame(to, b'S', *id, &json(program)?),
        Order::Feed { id, bytes } => frame(to, b'I', *id, bytes),
        Order::Resize { id, rows, columns } => frame(to, b'W', *id, &json(&(rows, columns))?),
        Order::Signal { id, signal } => frame(to, b'K', *id, &json(signal)?),
        Order::PowerOff => frame(to, b'Q', 0, &[]),
    }
}

/// Reads one order; `None` at a clean end.
///
/// # Errors
///
/// The port failed, or what came is no order.
pub(crate) fn receive_order(from: &mut impl Read) -> io::Result<Option<Order>> {
    let Some((kind, id, bytes)) = next_frame(from)? else {
        return Ok(None);
    };
    Ok(Some(match kind {
        b'F' => Order::Furnish(value(&bytes)?),
        b'S' => Order::Start { id, program: value(&bytes)? },
        b'I' => Order::Feed { id, bytes },
        b'W' => {
            let (rows, columns) = value(&bytes)?;
            Order::Resize { id, rows, columns }
        }
        b'K' => Order::Signal { id, signal: value(&bytes)? },
        b'Q' => Order::PowerOff,
        _ => return Err(invalid(format!("unknown order {kind}"))),
    }))
}

/// Writes one report.
///
/// # Errors
///
/// The port is gone.
pub(crate) fn report(to: &mut impl Write, report: &Report) -> io::Result<()> {
    match report {
        Report::Ready => frame(to, b'r', 0, &[]),
        Report::Broken(reason) => frame(to, b'b', 0, reason.as_bytes()),
        Report::Program(Event::Output { id, stream: Stream::Output, bytes }) => frame(to, b'o', *id, bytes),
        Report::Program(Event::Output { id, stream: Stream::Error, bytes }) => frame(to, b'e', *id, bytes),
        Report::Program(Event::Ended { id, outcome }) => frame(to, b'x', *id, &json(outcome)?),
        Report::Program(Event::NotStarted { id, reason }) => frame(to, b'n', *id, reason.as_bytes()),
    }
}

/// Reads one report; `None` at a clean end.
///
/// # Errors
///
/// The port failed, or what came is no report.
pub(crate) fn receive_report(from: &mut impl Read) -> io::Result<Option<Report>> {
    let Some((kind, id, bytes)) = next_frame(from)? else {
        return Ok(None);
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Some(match kind {
        b'r' => Report::Ready,
        b'b' => Report::Broken(text(&bytes)),
        b'o' => Report::Program(Event::Output { id, stream: Stream::Output, bytes }),
        b'e' => Report::Program(Event::Output { id, stream: Stream::Error, bytes }),
        b'x' => Report::Program(Event::Ended { id, outcome: value::<Outcome>(&bytes)? }),
        b'n' => Report::Program(Event::NotStarted { id, reason: text(&bytes) }),
        _ => return Err(invalid(format!("unknown report {kind}"))),
    }))
}

fn frame(to: &mut impl Write, kind: u8, id: u32, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(|_| invalid("frame too long".into()))?;
    // One write a frame: each costs the guest a trip to the device.
    let mut bytes = Vec::with_capacity(9 + payload.len());
    bytes.push(kind);
    bytes.extend(id.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(payload);
    to.write_all(&bytes)?;
    to.flush()
}

fn next_frame(from: &mut impl Read) -> io::Result<Option<(u8, u32, Vec<u8>)>> {
    let mut kind = [0];
    if from.read(&mut kind)? == 0 {
        return Ok(None);
    }
    let mut number = [0; 4];
    from.read_exact(&mut number)?;
    let id = u32::from_le_bytes(number);
    from.read_exact(&mut number)?;
    let length = u32::from_le_bytes(number);
    if length > LONGEST {
        return Err(invalid(format!("a frame of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(Some((kind[0], id, bytes)))
}

fn json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::from)
}

fn value<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(io::Error::from)
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
