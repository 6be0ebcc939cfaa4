//! Where an upload goes: [`Target`].

use hoop_http::Origin;
use url::Url;

/// Where Z goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A gateway, which takes it on to `dest`.
    Gateway {
        /// The service's post URL.
        dest: Url,
        /// The service's permit, in base64url.
        permit: Option<String>,
        /// When the upload should be there, in seconds since 1970.
        deadline: Option<u32>,
    },
    /// The service itself, at the path of its post URL.
    Service {
        /// The path.
        post: String,
        /// How long the service may keep us waiting for a final state, in seconds.
        wait_secs: u32,
        /// T, in base64url, for a service that takes uploads from certain gateways and devices only.
        token: Option<String>,
    },
}

impl Target {
    /// The service that a gateway is to bring it to.
    pub(crate) fn service(&self) -> Option<Origin> {
        match self {
            Self::Gateway { dest, .. } => Origin::of(dest).ok(),
            Self::Service { .. } => None,
        }
    }
}
