//! What is typed of uploads that `hoop agent` leaves with a gateway.

use crate::base::exit::Failure;
use crate::device::{NetworkFlags, client_config, gateway};
use clap::Args;
use hoop_agent::{PatientConfig, PatientUrl};
use hoop_client::ClientConfig;
use hoop_http::Clock;
use std::path::PathBuf;

#[derive(Args)]
#[command(next_help_heading = "Patient uploads")]
pub struct Flags {
    /// Seal each upload (POST, PUT, PATCH) to this URL and to all below it, and leave it with the gateway of this network. The program gets 202 when all of it is stored; may be given several times
    #[arg(long, value_name = "URL")]
    patient: Vec<PatientUrl>,
    /// The gateway: auto (look for one), none, or a URL. Several URLs are tried in the given order
    #[arg(long, value_name = "auto|none|URL", env = "HOOP_GATEWAY", value_delimiter = ',', default_value = "auto")]
    gateway: Vec<String>,
    /// Rely on a gateway that shows no key, or another than is known here. Without this option, a program then gets its 202 only when the service has the upload
    #[arg(long)]
    trust_new_gateway: bool,
    #[command(flatten)]
    network: NetworkFlags,
}

impl Flags {
    /// Authorities that are believed besides the system's.
    pub fn ca(&self) -> &[PathBuf] {
        &self.network.ca
    }

    /// None: no upload is patient.
    pub fn config(self) -> Result<Option<PatientConfig>, Failure> {
        if self.patient.is_empty() {
            return Ok(None);
        }
        let gateway = gateway(&self.gateway)?;
        let client = ClientConfig { gateway, ..client_config(&self.network, Clock::system()) };
        Ok(Some(PatientConfig { urls: self.patient, client, trust_new_gateway: self.trust_new_gateway }))
    }
}
