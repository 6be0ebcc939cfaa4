//! Hands one file to the gateway on the LAN, as a form would, and says when one may leave.
//!
//! ```console
//! $ cargo run -p hoop-client --example upload -- https://photos.example/photos evening.jpg
//! ```

use hoop_client::{Client, ClientConfig, Event, Part, Payload, PushOptions, Upload, Way};
use std::error::Error;
use std::sync::Arc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: upload URL FILE".into());
    };
    // Without a folder for its state the client remembers nothing, and an interrupted upload cannot be resumed.
    let state = std::env::temp_dir().join("hoop-upload-example");
    let client = Client::new(ClientConfig { state_dir: Some(state), ..ClientConfig::default() })?;
    let upload = Upload::new(url.parse()?, Payload::Form(vec![Part::file("file", &file)]));

    let outcome = client.push(&upload, &PushOptions::default(), Arc::new(report)).await?;
    let leave = if outcome.may_leave { "you may leave" } else { "please stay" };
    println!("{file}: {} bytes, {}; {leave}", outcome.bytes, outcome.state);
    if let Some(monitor) = outcome.monitor {
        println!("Follow it: {monitor}");
    }
    Ok(())
}

/// Prints what happens on the way.
fn report(event: Event) {
    match event {
        Event::Way { way: Way::Gateway(origin), .. } => println!("to the gateway {origin}"),
        Event::Way { way: Way::Direct, because } => {
            println!("to the service directly ({})", because.unwrap_or_default())
        }
        Event::Progress { sent, total } => println!("{sent} of {total} bytes"),
        Event::Broken { reason } => println!("{reason}; trying again"),
        _ => {}
    }
}
