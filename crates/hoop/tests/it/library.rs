//! The Rust API, with two gateways and two services in one process: nothing is shared that should not be.

use crate::common::{self, App, noise_file};
use hoop_client::{
    Client, ClientConfig, Event, GatewayChoice, Part, Payload, PushOptions, State, Upload, WaitFor, Way,
};
use hoop_gateway::Gateway;
use hoop_http::{Origin, ShutdownTrigger, shutdown};
use hoop_seal::{Keyring, KwsId, ServiceKey};
use hoop_service::Service;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

/// A running server; it stops when the trigger goes.
struct Running {
    origin: Origin,
    stop: ShutdownTrigger,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.stop.trigger();
        self.task.await.unwrap();
    }
}

async fn gateway(folder: &Path) -> Running {
    let mut config = hoop_gateway::Config::new(folder.join("spool"));
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.mdns = false;
    config.allow_dest = vec!["127.0.0.1".parse().unwrap()];
    let gateway = Gateway::open(config).await.unwrap();
    let origin = format!("http://{}", gateway.address()).parse().unwrap();
    let (stop, stopped) = shutdown();
    Running { origin, stop, task: tokio::spawn(async move { gateway.run(stopped).await }) }
}

async fn service(folder: &Path, app: &App, number: u8) -> Running {
    let origin: Origin = format!("http://127.0.0.1:{}", common::free_port()).parse().unwrap();
    let keys = Keyring::new(ServiceKey::new(KwsId([number; 4]), [number; 32]));
    let upstream = app.origin().parse().unwrap();
    let mut config = hoop_service::Config::new(upstream, origin.clone(), keys, folder.join("service"));
    config.listen = ([127, 0, 0, 1], origin.port()).into();
    let service = Service::open(config).await.unwrap();
    let (stop, stopped) = shutdown();
    Running { origin, stop, task: tokio::spawn(async move { service.run(stopped).await }) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_and_two_services_live_in_one_process() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let apps = [App::start(), App::start()];
    let (mut gateways, mut services) = (Vec::new(), Vec::new());
    for (number, (folder, app)) in folders.iter().zip(&apps).enumerate() {
        gateways.push(gateway(folder.path()).await);
        services.push(service(folder.path(), app, number as u8).await);
    }
    // Each gateway delivers to both services.
    for (at, gateway) in gateways.iter().enumerate() {
        for (to, service) in services.iter().enumerate() {
            let folder = folders[at].path();
            let bytes = noise_file(folder, "file", 200_000 + 10 * at + to);
            let config = ClientConfig {
                state_dir: Some(folder.join("state")),
                gateway: GatewayChoice::At(gateway.origin.clone()),
                ..ClientConfig::default()
            };
            let client = Client::new(config).unwrap();
            let form = Payload::Form(vec![Part::file("f", folder.join("file"))]);
            let upload = Upload::new(format!("{}/up", service.origin).parse().unwrap(), form);
            let events = Arc::<Mutex<Vec<Event>>>::default();
            let log = events.clone();
            let options = PushOptions { wait: WaitFor::Accepted, ..PushOptions::default() };
            let on_event = Arc::new(move |event| log.lock().unwrap().push(event));
            let outcome = client.push(&upload, &options, on_event).await.unwrap();
            assert_eq!((outcome.state, &outcome.way), (State::Accepted, &Way::Gateway(gateway.origin.clone())));
            assert_eq!(outcome.answer.unwrap().status, 201);
            let seen = apps[to].uploads();
            assert_eq!(seen.len(), at + 1);
            assert!(common::holds(&seen[at].body, &bytes));
            let last = events.lock().unwrap().iter().rev().find_map(|event| match event {
                Event::Progress { sent, total } => Some(sent == total),
                _ => None,
            });
            assert_eq!(last, Some(true), "progress reaches the end");
            let (record, status) = client.status(outcome.id.unwrap()).await.unwrap();
            assert_eq!((record.name.as_str(), record.finished, status.state), ("file", true, State::Accepted));
        }
    }
    for server in gateways.into_iter().chain(services) {
        server.stop().await;
    }
}
