//! How two programs tell each other their [`Endpoint`]s: over TCP, as the C programs of libibverbs do.
//!
//! Client and server send 52 bytes each, the endpoint as text with a NUL; the client first. Then the client sends `done`
//! with a NUL, and the server begins to wait for messages. Programs that have no counterpart among those swap lines of text.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use verbs::{Endpoint, RemoteSlice};

/// How many bytes an endpoint is, with its NUL.
const ENDPOINT_LEN: usize = 52;
/// The longest line that a peer may send.
const MAX_LINE: usize = 1 << 20;
const DONE: &[u8; 5] = b"done\0";

/// Which end of the connection a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for the client, and sends its endpoint second.
    Server,
    /// Connects to the server, and sends its endpoint first.
    Client,
}

/// A TCP connection to the peer.
#[derive(Debug)]
pub struct Exchange {
    stream: TcpStream,
    role: Role,
    timeout: Duration,
}

impl Exchange {
    /// Waits for a client at a TCP port. From then on, the peer has `timeout` for each answer.
    ///
    /// # Errors
    ///
    /// The port is taken, or may not be used.
    pub fn accept(port: u16, timeout: Duration) -> Result<Self> {
        // An IPv6 socket takes IPv4 connections too; where there is no IPv6, an IPv4 one has to do.
        let listener = TcpListener::bind(("::", port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
            .with_context(|| format!("cannot listen at TCP port {port}; choose another one with --port"))?;
        let (stream, _) = listener.accept().context("cannot accept a client")?;
        Self::new(stream, Role::Server, timeout)
    }

    /// Connects to the server at `host`, which has `timeout` for that and for each answer.
    ///
    /// # Errors
    ///
    /// There is no such host, or no server at that port.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self> {
        let addresses = (host, port).to_socket_addrs().with_context(|| format!("there is no host named {host:?}"))?;
        let mut last = anyhow!("the host {host:?} has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Self::new(stream, Role::Client, timeout),
                Err(error) => last = error.into(),
            }
        }
        Err(last
            .context(format!("no server answers at {host}, TCP port {port}; start the server first (without HOST)")))
    }

    fn new(stream: TcpStream, role: Role, timeout: Duration) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream, role, timeout })
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Sends the local endpoint, without its MTU, of which the C programs do not know.
    ///
    /// # Errors
    ///
    /// The peer hung up.
    pub fn send_endpoint(&mut self, mut local: Endpoint) -> Result<()> {
        local.mtu = None;
        self.write(format!("{local}\0").as_bytes())
    }

    /// Receives the peer's endpoint.
    ///
    /// # Errors
    ///
    /// The peer hung up, did not answer in time, or sent what is no endpoint.
    pub fn receive_endpoint(&mut self) -> Result<Endpoint> {
        let mut message = [0; ENDPOINT_LEN];
        self.read(&mut message)?;
        text(&message).parse().context(
            "the peer does not speak the protocol of the ping-pong programs; is another service at this TCP port?",
        )
    }

    /// Sends the local endpoint and receives the peer's. `ready` is called once the remote one is known, to connect the queue pair:
    /// the server does so before it answers, since the client may send as soon as it has the answer.
    ///
    /// # Errors
    ///
    /// As those of [`receive_endpoint`](Self::receive_endpoint), and that of `ready`.
    pub fn swap_endpoint(&mut self, local: Endpoint, ready: impl FnOnce(&Endpoint) -> Result<()>) -> Result<Endpoint> {
        Ok(self.swap_endpoints(&[local], 1, |remote| ready(&remote[0]))?[0])
    }

    /// [`swap_endpoint`](Self::swap_endpoint) of several at once. Each end sends `slots` of them, of which those after the local ones
    /// mean nothing.
    ///
    /// # Errors
    ///
    /// As those of [`swap_endpoint`](Self::swap_endpoint).
    pub fn swap_endpoints(
        &mut self,
        local: &[Endpoint],
        slots: usize,
        ready: impl FnOnce(&[Endpoint]) -> Result<()>,
    ) -> Result<Vec<Endpoint>> {
        let rest = slots.saturating_sub(local.len());
        if self.role == Role::Client {
            self.send_endpoints(local, rest)?;
        }
        let remote = local.iter().map(|_| self.receive_endpoint()).collect::<Result<Vec<_>>>()?;
        // The C program sends there what happened to be in its memory.
        self.read(&mut vec![0; rest * ENDPOINT_LEN])?;
        ready(&remote)?;
        if self.role == Role::Server {
            self.send_endpoints(local, rest)?;
        }
        Ok(remote)
    }

    fn send_endpoints(&mut self, local: &[Endpoint], rest: usize) -> Result<()> {
        let fillers = std::iter::repeat_n(Endpoint::new(0, 0), rest);
        local.iter().copied().chain(fillers).try_for_each(|endpoint| self.send_endpoint(endpoint))
    }

    /// Tells the peer what memory it may use for `operation`, and receives the same of it.
    ///
    /// # Errors
    ///
    /// The peer hung up, did not answer in time, or runs another operation.
    pub fn swap_remote_slice(&mut self, operation: &str, local: RemoteSlice) -> Result<RemoteSlice> {
        let expected = format!("{operation:5}:");
        let mut message = vec![0; format!("{expected}{local}\0").len()];
        if self.role == Role::Client {
            self.write(format!("{expected}{local}\0").as_bytes())?;
            self.read(&mut message)?;
        } else {
            self.read(&mut message)?;
            self.write(format!("{expected}{local}\0").as_bytes())?;
        }
        match text(&message).strip_prefix(&expected) {
            Some(slice) => slice.parse().context("the peer does not say which memory it offers"),
            None => bail!("the peer does not run --op {operation}; both ends have to run the same operation"),
        }
    }

    /// The end of the exchange: the client says that it is done, the server hears it.
    ///
    /// # Errors
    ///
    /// The peer hung up, did not answer in time, or has something else to say.
    pub fn finish(&mut self) -> Result<()> {
        match self.role {
            Role::Client => self.write(DONE),
            Role::Server => self.expect_done(),
        }
    }

    /// Waits until both ends have come here.
    ///
    /// # Errors
    ///
    /// As those of [`finish`](Self::finish).
    pub fn barrier(&mut self) -> Result<()> {
        self.write(DONE)?;
        self.expect_done()
    }

    /// Sends a line of text, and receives the peer's. The peer may take its time: `patience`, or `None` for as long as it lives.
    ///
    /// # Errors
    ///
    /// The peer hung up, did not answer in time, or sent no line of text.
    pub fn swap_line(&mut self, line: &str, patience: Option<Duration>) -> Result<String> {
        self.write(format!("{line}\n").as_bytes())?;
        self.stream.set_read_timeout(patience)?;
        let line = self.read_line(patience);
        self.stream.set_read_timeout(Some(self.timeout))?;
        line
    }

    fn read_line(&mut self, patience: Option<Duration>) -> Result<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            // A byte at a time: what follows the line is not for us yet. Lines are few and short.
            self.stream.read_exact(&mut byte).map_err(|error| self.explain(error, patience))?;
            match byte[0] {
                b'\n' => break,
                byte if line.len() < MAX_LINE => line.push(byte),
                _ => bail!("the peer sends a line without an end; is another service at this TCP port?"),
            }
        }
        String::from_utf8(line).map_err(|_| anyhow!("the peer sends no text; is another service at this TCP port?"))
    }

    fn expect_done(&mut self) -> Result<()> {
        let mut message = [0; DONE.len()];
        self.read(&mut message)?;
        match &message {
            DONE => Ok(()),
            b"write" | b"read " | b"all  " => {
                bail!("the peer runs --op {}; both ends have to run the same operation", text(&message).trim_end())
            }
            _ => bail!("the peer ended the exchange with {:?} instead of \"done\"", text(&message)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // In one piece: the C programs take a message by a single read.
        self.stream.write_all(bytes).map_err(|error| self.explain(error, None))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.stream.read_exact(bytes).map_err(|error| self.explain(error, Some(self.timeout)))
    }

    fn explain(&self, error: io::Error, patience: Option<Duration>) -> anyhow::Error {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                anyhow!("the peer hung up during the exchange of endpoints; see what it printed")
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let patience = patience.unwrap_or(self.timeout);
                anyhow!("the peer said nothing for {patience:?} during the exchange of endpoints")
            }
            _ => anyhow::Error::from(error).context("the exchange of endpoints failed"),
        }
    }
}

/// The text up to its NUL.
fn text(message: &[u8]) -> std::borrow::Cow<'_, str> {
    let end = message.iter().position(|byte| *byte == 0).unwrap_or(message.len());
    String::from_utf8_lossy(&message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A server that runs `serve` with its connection, and a client of it, which has `timeout` for each answer, but enough to connect.
    fn with_server<T: Send + 'static>(
        serve: impl FnOnce(Exchange) -> T + Send + 'static,
        timeout: Duration,
    ) -> (Exchange, thread::JoinHandle<T>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server =
            thread::spawn(move || serve(Exchange::new(listener.accept().unwrap().0, Role::Server, LIMIT).unwrap()));
        let client = Exchange::connect("127.0.0.1", port, LIMIT).unwrap();
        (Exchange::new(client.stream, Role::Client, timeout).unwrap(), server)
    }

    #[test]
    fn both_ends_learn_the_others_endpoint() {
        let (mut client, server) = with_server(
            |mut server| {
                let remote = server.receive_endpoint().unwrap();
                server.send_endpoint(Endpoint::new(2, 20)).unwrap();
                server.finish().unwrap();
                remote
            },
            LIMIT,
        );
        client.send_endpoint(Endpoint::new(1, 10)).unwrap();
        assert_eq!(client.receive_endpoint().unwrap(), Endpoint::new(2, 20));
        client.finish().unwrap();
        assert_eq!(server.join().unwrap(), Endpoint::new(1, 10));
    }

    #[test]
    fn the_server_is_ready_before_it_answers_and_the_client_before_it_is_done() {
        let local = [Endpoint::new(1, 10), Endpoint::new(2, 20)];
        let remote = [Endpoint::new(3, 30), Endpoint::new(4, 40)];
        let (order, events) = std::sync::mpsc::channel();
        let servers = order.clone();
        let (mut client, server) = with_server(
            move |mut server| {
                let ready = |_: &[Endpoint]| Ok(servers.send("server")?);
                let of_client = server.swap_endpoints(&remote, 5, ready).unwrap();
                server.finish().unwrap();
                of_client
            },
            LIMIT,
        );
        let of_server = client.swap_endpoints(&local, 5, |_| Ok(order.send("client")?)).unwrap();
        client.finish().unwrap();
        assert_eq!(of_server, remote);
        assert_eq!(server.join().unwrap(), local);
        drop(order);
        assert_eq!(events.iter().collect::<Vec<_>>(), ["server", "client"]);
    }

    #[test]
    fn nonsense_a_hang_up_and_silence_are_told_apart() {
        let (mut client, server) = with_server(
            |mut server| server.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n.....").unwrap(),
            LIMIT,
        );
        let error = client.receive_endpoint().unwrap_err();
        assert!(error.to_string().starts_with("the peer does not speak the protocol"), "{error}");
        server.join().unwrap();

        let (mut client, server) = with_server(|mut server| server.write(b"0000:").unwrap(), LIMIT);
        assert!(client.receive_endpoint().unwrap_err().to_string().starts_with("the peer hung up"));
        server.join().unwrap();
        // The first write after it may still go out; the peer's host answers that nobody is there.
        let error = (0..6000).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            client.send_endpoint(Endpoint::new(1, 2)).err()
        });
        assert!(error.unwrap().to_string().starts_with("the peer hung up"));

        let (mut client, server) = with_server(|server| server, Duration::from_millis(50));
        let error = client.receive_endpoint().unwrap_err().to_string();
        assert!(error.starts_with("the peer said nothing for 50ms"), "{error}");
        drop(server.join().unwrap());
    }

    #[test]
    fn lines_are_swapped_as_often_as_wanted_and_a_peer_may_take_longer_than_usual() {
        let (mut client, server) = with_server(
            |mut server| {
                let first = server.swap_line("one", None).unwrap();
                thread::sleep(Duration::from_millis(150));
                (first, server.swap_line("two", None).unwrap())
            },
            Duration::from_millis(50),
        );
        assert_eq!(client.swap_line("eins", None).unwrap(), "one");
        assert_eq!(client.swap_line("zwei", None).unwrap(), "two");
        assert_eq!(server.join().unwrap(), ("eins".to_owned(), "zwei".to_owned()));
        assert!(client.swap_line("drei", None).unwrap_err().to_string().starts_with("the peer hung up"));

        let (mut client, server) = with_server(|server| server, LIMIT);
        let error = client.swap_line("line", Some(Duration::from_millis(50))).unwrap_err().to_string();
        assert!(error.starts_with("the peer said nothing for 50ms"), "{error}");
        drop(server.join().unwrap());
    }

    #[test]
    fn a_peer_that_sends_no_lines_of_text_is_noticed() {
        for nonsense in [vec![b'x'; MAX_LINE + 1], b"\xff\xfe\n".to_vec()] {
            let (mut client, server) =
                with_server(move |mut server| server.read_line(None).map(|_| drop(server.write(&nonsense))), LIMIT);
            let error = client.swap_line("line", None).unwrap_err().to_string();
            assert!(error.ends_with("is another service at this TCP port?"), "{error}");
            drop(client);
            server.join().unwrap().unwrap();
        }
    }

    #[test]
    fn ends_that_run_different_operations_notice() {
        let slice = RemoteSlice::new(0x1000, 64, 7).unwrap();
        let (mut client, server) =
            with_server(move |mut server| server.swap_remote_slice("read", slice).map(drop), LIMIT);
        let error = client.swap_remote_slice("write", slice).unwrap_err().to_string();
        assert_eq!(error, "the peer does not run --op write; both ends have to run the same operation");
        assert!(server.join().unwrap().unwrap_err().to_string().contains("does not run --op read"));

        let (mut client, server) = with_server(|mut server| server.finish(), LIMIT);
        client.write(format!("write:{slice}\0").as_bytes()).unwrap();
        let error = server.join().unwrap().unwrap_err().to_string();
        assert_eq!(error, "the peer runs --op write; both ends have to run the same operation");
    }
}
