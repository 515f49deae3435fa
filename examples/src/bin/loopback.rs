// Two queue pairs of one device, connected to each other: the shortest program that moves data.
// (`src/loopback/main.rs` gives it the command line that the other programs have.)

use verbs::{AccessFlags, ConnectOptions, GidFilter, QueuePair, Rc, ReceiveRequest, SendRequest, WorkCompletion};

fn main() -> verbs::Result<()> {
    let context = verbs::devices()?.find(None)?.open()?;
    let pd = context.create_protection_domain()?;
    let cq = context.create_completion_queue(16)?;
    let mut region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;

    let sender = QueuePair::<Rc>::builder(&pd, &cq, &cq).build()?;
    let receiver = QueuePair::<Rc>::builder(&pd, &cq, &cq).build()?;
    let from = sender.local_endpoint(1, &GidFilter::default())?;
    let to = receiver.local_endpoint(1, &GidFilter::default())?;
    sender.connect(&from, &to.endpoint, &ConnectOptions::default())?;
    receiver.connect(&to, &from.endpoint, &ConnectOptions::default())?;

    region.write_at(0, b"Hello, RDMA!")?;
    receiver.post_receive(&ReceiveRequest::new(1, &[region.slice(2048..)?]))?;
    sender.post_send(&SendRequest::send(2, &[region.slice(..12)?]).signaled())?;

    let mut completions = [WorkCompletion::default(); 2];
    let mut outstanding = 2;
    while outstanding > 0 {
        for completion in cq.poll(&mut completions)? {
            let done = completion.success()?;
            println!("request {}: {}, {:?} bytes", done.wr_id(), done.opcode(), done.byte_len());
            outstanding -= 1;
        }
    }
    println!("{}", String::from_utf8_lossy(&region.to_vec(2048..2060)?));
    Ok(())
}
