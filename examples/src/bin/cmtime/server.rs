//! The passive side: what each event asks for.

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context as _, Result, ensure};
use cm::{ConnectionParameters, ConnectionRequest, Depth, EventChannel, EventKind, Id, PortSpace, TransitionOptions};
use examples::connection::{ANY, with_port};
use verbs::{CompletionQueue, QueuePair, Rc};

use crate::{Options, next, queue_pair};

pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let channel = EventChannel::create()?;
    let listener = channel.create_id(PortSpace::TCP)?;
    listener.bind(with_port(options.bind.unwrap_or(ANY), options.port)).context("cannot listen")?;
    listener.listen(options.connections)?;

    let mut cq = None;
    let mut connections = HashMap::new();
    let (mut established, mut ended) = (0, 0);
    while ended < options.connections {
        // For the first client it waits as long as it takes.
        let (key, event) = match connections.is_empty() {
            true => match channel.next_event(None)? {
                Some(event) => (event.id(), event.into_kind()),
                None => continue,
            },
            false => next(&channel, options)?,
        };
        match event {
            EventKind::ConnectRequest(request) => {
                let (id, qp) = accept(request, &mut cq)?;
                connections.insert(id.key(), (id, qp));
            }
            EventKind::Established(_) => established += 1,
            EventKind::Disconnected => {
                if let Some((id, _)) = connections.get(&key) {
                    // The answer: the client waits for it.
                    id.disconnect()?;
                    ended += 1;
                }
            }
            EventKind::TimewaitExit => drop(connections.remove(&key)),
            other => writeln!(out, "a client did not get through: {other}")?,
        }
    }
    writeln!(out, "{established} connections established, {ended} ended")?;
    ensure!(established == ended, "{established} connections were established, but {ended} ended");
    Ok(())
}

fn accept(request: ConnectionRequest, cq: &mut Option<CompletionQueue>) -> Result<(Id, QueuePair<Rc>)> {
    let (responder_resources, initiator_depth) =
        (request.parameters().responder_resources, request.parameters().initiator_depth);
    let qp = queue_pair(request.id(), cq)?;
    let mut transition = TransitionOptions::default();
    transition.responder_resources = Some(responder_resources);
    transition.initiator_depth = Some(initiator_depth);
    request.id().connect_queue_pair(&qp, &transition)?;
    let mut parameters = ConnectionParameters::new(qp.qp_num());
    parameters.responder_resources = Depth::Exactly(responder_resources);
    parameters.initiator_depth = Depth::Exactly(initiator_depth);
    // From here on the id is not rejected when it is dropped.
    let id = request.into_id();
    id.accept(&parameters)?;
    Ok((id, qp))
}
