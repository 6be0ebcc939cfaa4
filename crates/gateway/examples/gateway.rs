//! A gateway in a program of one's own: `gateway ADDRESS:PORT FOLDER [ALLOWED-DESTINATION]…`, until its standard input ends.

use hoop_gateway::{Config, Gateway};
use hoop_http::shutdown;
use std::error::Error;
use std::io::Read as _;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().ok_or("which address and port?")?.parse()?;
    let spool = arguments.next().ok_or("which folder?")?;
    let allow_dest = arguments.map(|text| text.parse()).collect::<Result<_, _>>()?;
    let config = Config { listen, allow_dest, mdns: false, ..Config::new(spool) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = shutdown();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.trigger();
    });
    runtime.block_on(async {
        let gateway = Gateway::open(config).await?;
        println!("listening on http://{}", gateway.address());
        gateway.run(stopped).await;
        Ok(())
    })
}
