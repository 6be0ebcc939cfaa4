//! A relay behind an ordinary web server that ends TLS, on a network that lets nothing but that server's port through: real nginx and real Apache, with the lines that docs/run.md
//! shows, real relay, real curl.

use crate::programs::has_other_users;
use hoop_testbed::{Certificates, Program, Roaming, sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Some six seconds of the link.
const LEN: usize = 6_000_000;

/// Generous, since machines are busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the relay listens for web servers.
const PLAIN: &str = "127.0.0.1:4670";

/// The lines of a language that the documentation shows.
fn recipe(language: &str) -> String {
    let docs = include_str!("../../../../docs/run.md");
    let (_, rest) = docs.split_once(&format!("```{language}\n")).expect("a recipe");
    let (lines, _) = rest.split_once("\n```").expect("its end");
    assert!(lines.contains(PLAIN), "{lines}");
    lines.to_owned()
}

/// The relay's machine has a web server, too, whose certificate is of another authority than the relay's.
struct World {
    roaming: Roaming,
    front: Certificates,
    introduction: PathBuf,
}

impl World {
    fn build() -> Self {
        let roaming = Roaming::build(LEN).expect("a lab: run as root, or where user namespaces are allowed");
        roaming.restart_relay_with(&["--plain-listen", PLAIN]).unwrap();
        let folder = roaming.path("front");
        fs::create_dir(&folder).unwrap();
        let address = roaming.lab.address_on("relay", "core").to_string();
        let front = Certificates::make(&folder, &[&address]).unwrap();
        let introduction = roaming.path("front.toml");
        let mut introduce = Command::new(hoop_testbed::program_beside("hoop"));
        introduce.args(["introduce", "relay.example:4669", "--address", &address]);
        introduce.arg("--devices").arg(roaming.path("devices.toml")).arg("--cert").arg(roaming.path("ca.pem"));
        introduce.args(["--front", &format!("wss://{address}")]).arg("--front-cert").arg(&front.authority);
        let introduced = introduce.arg("--output").arg(&introduction).output().unwrap();
        assert!(introduced.status.success(), "{}", String::from_utf8_lossy(&introduced.stderr));
        roaming.enter_wifi().unwrap();
        let world = Self { roaming, front, introduction };
        let rules = "add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in meta l4proto { tcp, udp } th dport 4669 drop";
        assert!(world.roaming.lab.command("relay", "nft").arg(rules).status().unwrap().success());
        world
    }

    fn nginx(&self) -> Program {
        let path = |name: &str| self.roaming.path(name).display().to_string();
        let (certificate, key) = (self.front.certificate.display(), self.front.key.display());
        let config = format!(
            "daemon off; master_process off; pid {}; error_log stderr notice; events {{}} http {{ access_log off; client_body_temp_path {}; proxy_temp_path {}; \
             fastcgi_temp_path {}; uwsgi_temp_path {}; scgi_temp_path {}; server {{ listen 443 ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n{}\n}} }}",
            path("nginx.pid"),
            path("body"),
            path("proxy"),
            path("fastcgi"),
            path("uwsgi"),
            path("scgi"),
            recipe("nginx")
        );
        fs::write(path("nginx.conf"), config).unwrap();
        let mut nginx = self.roaming.lab.command("relay", "nginx");
        nginx.args(["-e", "stderr", "-c", &path("nginx.conf")]);
        Program::start("nginx", nginx, "getrlimit").unwrap()
    }

    fn apache(&self) -> Program {
        let path = |name: &str| self.roaming.path(name).display().to_string();
        let (certificate, key) = (self.front.certificate.display(), self.front.key.display());
        let modules = ["mpm_event", "authz_core", "ssl", "proxy", "proxy_http"];
        let modules =
            modules.map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")).concat();
        let config = format!(
            "{modules}User nobody\nGroup nogroup\nServerName front\nListen 443\nPidFile {}\nDefaultRuntimeDir {}\nErrorLog /dev/stderr\nLogLevel mpm_event:debug\nSSLEngine on\nSSLCertificateFile {certificate}\nSSLCertificateKeyFile {key}\n{}\n",
            path("apache.pid"),
            path(""),
            recipe("apache")
        );
        fs::write(path("apache.conf"), config).unwrap();
        // In one process, which can be killed.
        let mut apache = self.roaming.lab.command("relay", "apache2");
        apache.args(["-X", "-f", &path("apache.conf")]);
        Program::start("Apache", apache, "start_threads").unwrap()
    }

    /// Curl gets the file, and is in the middle of it.
    fn half_a_download(&self, into: &Path) -> Program {
        let mut run = self.roaming.lab.command("phone", hoop_testbed::program_beside("hoop"));
        run.args(["run", "--relay"]).arg(&self.introduction).args(["--", "curl", "--silent", "--show-error", "--fail"]);
        run.arg("--output").arg(into).arg(format!("http://{}/file", self.roaming.lab.address("web")));
        run.env("HOOP_LOG", "hoop_relay=debug");
        let run = Program::start("hoop run", run, "a carrier is up").unwrap();
        assert!(run.text().contains("WebSocket"), "{}", run.text());
        let end = Instant::now() + PATIENCE;
        while fs::metadata(into).map_or(0, |file| file.len()) < 1_000_000 {
            assert!(Instant::now() < end, "no more comes: {}", run.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        run
    }

    fn assert_whole(&self, into: &Path, mut run: Program) {
        assert!(run.wait().unwrap().success(), "{}", run.text());
        assert_eq!(sha256(into).unwrap(), sha256(&self.roaming.path("www/file")).unwrap(), "as it was sent");
    }

    /// Downloads outlive another address of the device, and a restart of the web server, which ends all connections through it.
    fn outlives(&self, start: impl Fn() -> Program) {
        let mut front = start();
        let into = self.roaming.path("by-another-address");
        let run = self.half_a_download(&into);
        self.roaming.leave_wifi().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        self.roaming.reach_cell().unwrap();
        self.assert_whole(&into, run);
        let into = self.roaming.path("by-another-front");
        let run = self.half_a_download(&into);
        front.kill();
        std::thread::sleep(Duration::from_secs(1));
        let _front = start();
        assert!(fs::metadata(&into).unwrap().len() < LEN as u64, "it was cut in the middle");
        self.assert_whole(&into, run);
    }
}

#[test]
fn behind_nginx_a_download_outlives_another_address_and_nginx_itself() {
    let world = World::build();
    world.outlives(|| world.nginx());
}

#[test]
fn behind_apache_a_download_outlives_another_address_and_apache_itself() {
    if !has_other_users() {
        return println!("not tested: Apache, which is not run by root, and there is no other user");
    }
    let world = World::build();
    world.outlives(|| world.apache());
}

/// The device asks the web server for a WebSocket, as it was told, and that one has none.
#[test]
fn a_web_server_that_passes_no_websockets_on_is_named() {
    let world = World::build();
    let path = |name: &str| world.roaming.path(name).display().to_string();
    let (certificate, key) = (world.front.certificate.display(), world.front.key.display());
    let config = format!(
        "daemon off; master_process off; pid {}; error_log stderr notice; events {{}} http {{ access_log off; server {{ listen 443 ssl; ssl_certificate {certificate}; ssl_certificate_key {key}; root {}; }} }}",
        path("nginx.pid"),
        path("www")
    );
    fs::write(path("nginx.conf"), config).unwrap();
    let mut nginx = world.roaming.lab.command("relay", "nginx");
    nginx.args(["-e", "stderr", "-c", &path("nginx.conf")]);
    let _front = Program::start("nginx", nginx, "getrlimit").unwrap();
    let mut run = world.roaming.lab.command("phone", hoop_testbed::program_beside("hoop"));
    run.args(["run", "--relay"]).arg(&world.introduction).args(["--", "curl", "--silent"]);
    run.arg(format!("http://{}/file", world.roaming.lab.address("web")));
    let run = Program::start("hoop run", run, "waiting for").unwrap();
    let told = run.text();
    assert!(told.contains("HTTP status 404"), "{told}");
    assert!(
        told.contains(&format!("the web server in front ({}:443)", world.roaming.lab.address_on("relay", "core"))),
        "{told}"
    );
}
