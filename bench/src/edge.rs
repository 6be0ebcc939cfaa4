//! Programs around `hoop agent` and `hoop relay`, each as it is: web servers and proxies of Debian's packages.

use crate::peers::ordinary_build;
use hoop_lab::Lab;
use hoop_testbed::Program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What certificates are for.
pub const NAME: &str = "server.test";

/// Whether a program is installed: it says its version.
pub fn is_installed(program: &str, version: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(version).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Introduces a device to the relay at that address; its file.
///
/// # Panics
/// If it cannot.
pub fn introduce(folder: &Path, name: &str, address: &str, port: u16) -> PathBuf {
    let file = folder.join(format!("{name}.toml"));
    let mut command = Command::new(ordinary_build());
    command.args(["introduce", &format!("{NAME}:{port}"), "--address", address, "--name", name]);
    command.arg("--devices").arg(folder.join("devices.toml")).arg("--cert").arg(folder.join("ca.pem"));
    let said = command.output().expect("hoop introduce runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    fs::write(&file, said.stdout).expect("room for a file");
    file
}

/// Where a program is started: on this machine, or in a host of a lab.
pub type Place<'a> = &'a dyn Fn(&Path) -> Command;

/// Starts `hoop relay` at that port, for devices that go to the origin at `allow`. It has no limit of connections begun.
///
/// # Panics
/// If it does not start.
pub fn relay(place: Place, folder: &Path, port: u16, allow: &str, more: &[&str]) -> Program {
    let mut command = place(&ordinary_build());
    command.args(["relay", "--listen", &format!("0.0.0.0:{port}"), "--allow", allow, "--device-begun", "0"]);
    // A machine's own name leads to its loopback.
    command.args(["--allow", "127.0.0.0/8"]);
    command.arg("--tls-cert").arg(folder.join("certificate.pem")).arg("--tls-key").arg(folder.join("key.pem"));
    command.arg("--devices").arg(folder.join("devices.toml")).args(more);
    start("hoop relay", command, "listening on")
}

/// Starts `hoop agent` on loopback at that port.
///
/// # Panics
/// If it does not start.
pub fn agent(place: Place, folder: &Path, introduction: &Path, port: u16) -> Program {
    let mut command = place(&ordinary_build());
    command.arg("agent").arg("--relay").arg(introduction).args(["--listen", &format!("127.0.0.1:{port}")]);
    command.env("XDG_RUNTIME_DIR", folder);
    start("hoop agent", command, "listening on")
}

/// Starts nginx, one process of one thread, with what stands in its `http` block.
///
/// # Panics
/// If it does not start.
pub fn nginx(place: Place, folder: &Path, http: &str) -> Program {
    fs::create_dir_all(folder).expect("a folder for nginx");
    let at = folder.display();
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; user root; pid {at}/pid; error_log stderr notice;
         events {{ worker_connections 4096; }}
         http {{ access_log off; client_body_temp_path {at}/temp; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
                 uwsgi_temp_path {at}/u; scgi_temp_path {at}/s; keepalive_requests 100000000; sendfile on; ssl_protocols TLSv1.3;
                 {http} }}"
    );
    fs::write(folder.join("conf"), configuration).expect("room for a configuration");
    let mut command = place(Path::new("nginx"));
    command.arg("-c").arg(folder.join("conf"));
    start("nginx", command, "RLIMIT_NOFILE")
}

/// Starts Caddy, which serves a folder by HTTP/3 at that port.
///
/// # Panics
/// If it does not start.
pub fn caddy(place: Place, folder: &Path, www: &Path, port: u16) -> Program {
    let configuration = format!(
        "{{
    admin off
    auto_https off
}}
https://{NAME}:{port} {{
    tls {} {}
    root * {}
    header Cache-Control no-store
    file_server
}}
",
        folder.join("certificate.pem").display(),
        folder.join("key.pem").display(),
        www.display()
    );
    fs::write(folder.join("Caddyfile"), configuration).expect("room for a configuration");
    let mut command = place(Path::new("caddy"));
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.join("Caddyfile"));
    command.env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder).env("HOME", folder);
    start("caddy", command, "serving initial configuration")
}

/// What both ends of v2ray know.
const V2RAY_USER: &str = "5783a3e7-e373-51cd-8642-c83782b807c5";

/// Starts v2ray's server at that port: VLESS over WebSocket and TLS.
///
/// # Panics
/// If it does not start.
pub fn v2ray_server(place: Place, folder: &Path, port: u16) -> Program {
    let certificate = serde_json::json!({
        "certificateFile": folder.join("certificate.pem"), "keyFile": folder.join("key.pem"),
    });
    let configuration = serde_json::json!({
        "log": { "loglevel": "warning" },
        "inbounds": [{
            "port": port, "protocol": "vless",
            "settings": { "clients": [{ "id": V2RAY_USER }], "decryption": "none" },
            "streamSettings": {
                "network": "ws", "security": "tls",
                "tlsSettings": { "certificates": [certificate] }, "wsSettings": { "path": "/mux" },
            },
        }],
        "outbounds": [{ "protocol": "freedom" }],
    });
    v2ray(place, folder, "v2ray-server.json", &configuration)
}

/// Starts v2ray's client, which passes what comes on loopback at `port` to the server's own port 80, all over one WebSocket.
///
/// # Panics
/// If it does not start.
pub fn v2ray_client(place: Place, folder: &Path, port: u16, server: &str, server_port: u16) -> Program {
    let configuration = serde_json::json!({
        "log": { "loglevel": "warning" },
        "inbounds": [{
            "listen": "127.0.0.1", "port": port, "protocol": "dokodemo-door",
            "settings": { "address": server, "port": 80, "network": "tcp" },
        }],
        "outbounds": [{
            "protocol": "vless", "mux": { "enabled": true, "concurrency": 1024 },
            "settings": { "vnext": [{
                "address": server, "port": server_port, "users": [{ "id": V2RAY_USER, "encryption": "none" }],
            }] },
            "streamSettings": {
                "network": "ws", "security": "tls", "wsSettings": { "path": "/mux" },
                "tlsSettings": { "serverName": NAME, "allowInsecure": true },
            },
        }],
    });
    v2ray(place, folder, "v2ray-client.json", &configuration)
}

/// Has packets of UDP for that port of a host vanish.
///
/// # Panics
/// If nftables does not take the rule.
pub fn block_udp(lab: &Lab, host: &str, port: u16) {
    let rules = format!(
        "add table inet block
         add chain inet block input {{ type filter hook input priority 0; }}
         add rule inet block input udp dport {port} drop"
    );
    let status = lab.command(host, "nft").arg(rules).status();
    assert!(status.is_ok_and(|status| status.success()), "nft blocks UDP");
}

fn v2ray(place: Place, folder: &Path, name: &str, configuration: &serde_json::Value) -> Program {
    fs::write(folder.join(name), configuration.to_string()).expect("room for a configuration");
    let mut command = place(Path::new("v2ray"));
    command.arg("-config").arg(folder.join(name));
    start("v2ray", command, "started")
}

fn start(name: &str, command: Command, ready: &str) -> Program {
    Program::start(name, command, ready).unwrap_or_else(|error| panic!("{error}"))
}
