//! An echo over a flow: the connection is lost in the middle, and neither end notices.
//!
//! ```console
//! $ cargo run -p hoop-endpoint --example echo
//! ```

use hoop_endpoint::{
    CarrierId, Device, DeviceConfig, DeviceId, DeviceKey, FlowOptions, FlowStream, Server, ServerConfig, Use,
};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A real program draws these at random, once, and tells both ends (`hoop introduce` does).
    let (host, key) = (DeviceId([1; 20]), DeviceKey([2; 32]));
    let server = Server::new(ServerConfig::new(Arc::new(HashMap::from([(host, key)]))));
    let device = Device::new(DeviceConfig::new(host, key));

    let mut flow = device.open("echo", FlowOptions::default())?;
    println!("the flow is open, and there is no connection");

    let wifi = connect(&device, &server, [1; 32], "wifi");
    let served = server.accept().await.ok_or("the server has ended")?;
    let echo = tokio::spawn(echo(served));

    println!("over wifi:     {}", ask(&mut flow, "hello").await?);
    device.remove_carrier(wifi);
    println!("wifi is gone");
    flow.write_all(b"again").await?;
    println!("written without a connection");
    connect(&device, &server, [2; 32], "cellular");
    println!("over cellular: {}", answer(&mut flow, 5).await?);

    flow.shutdown().await?;
    echo.await??;
    flow.finished().await?;
    println!("both ends have everything");
    Ok(())
}

/// Gives both ends a carrier. This one stays within the process; `hoop_carrier` has a dialer and a listener for real ones.
fn connect(device: &Device, server: &Server, binding: [u8; 32], network: &'static str) -> CarrierId {
    let (ours, theirs) = hoop_carrier::memory_pair(hoop_flow::Binding(binding));
    server.serve(Arc::new(theirs), network);
    device.add_carrier(Arc::new(ours), Use::Normal, network)
}

/// The server's application: sends back what comes.
async fn echo(mut flow: FlowStream) -> Result<(), std::io::Error> {
    let mut buffer = vec![0; 1_024];
    loop {
        match flow.read(&mut buffer).await? {
            0 => return flow.shutdown().await,
            length => flow.write_all(&buffer[..length]).await?,
        }
    }
}

/// Sends a text and waits for its echo.
async fn ask(flow: &mut FlowStream, text: &str) -> Result<String, Box<dyn Error>> {
    flow.write_all(text.as_bytes()).await?;
    answer(flow, text.len()).await
}

async fn answer(flow: &mut FlowStream, length: usize) -> Result<String, Box<dyn Error>> {
    let mut text = vec![0; length];
    flow.read_exact(&mut text).await?;
    Ok(String::from_utf8(text)?)
}
