//! From flags to an [`Upload`] and a [`Client`].

use super::flags::{HandFlags, NetworkFlags, RequestFlags};
use super::form;
use crate::base::exit::{Exit, Failure};
use crate::base::values;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hoop_client::{Client, ClientConfig, Content, Credentials, GatewayChoice, Payload, Upload};
use hoop_http::{Clock, Origin};
use http::header::{self, HeaderName};
use http::{HeaderValue, Method};
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The upload that the flags describe.
pub fn upload(flags: &RequestFlags) -> Result<Upload, Failure> {
    let text = flags.url.as_deref().ok_or_else(|| Failure::usage("the URL is missing"))?;
    let mut url = Url::parse(text).map_err(|error| {
        Failure::new(Exit::Usage, format!("`{text}` is not a URL"), error)
            .hint("give the full URL, such as https://photos.example/")
    })?;
    let mut user = flags.user.clone();
    if user.is_none() && !url.username().is_empty() {
        user = Some(format!("{}:{}", url.username(), url.password().unwrap_or_default()));
    }
    // They go into Authorization, and into no URL that is written down.
    let _ = (url.set_username(""), url.set_password(None));
    let (payload, default_method) = payload(flags, &mut url)?;
    let method = match &flags.method {
        Some(method) => method.parse().map_err(|_| Failure::usage(format!("`{method}` is not a method")))?,
        None => default_method,
    };
    let (headers, credentials) = headers(flags, user.as_deref())?;
    Ok(Upload { url, method, headers, credentials, payload })
}

fn payload(flags: &RequestFlags, url: &mut Url) -> Result<(Payload, Method), Failure> {
    if let Some(file) = &flags.upload_file {
        if url.path().ends_with('/')
            && let Some(name) = std::path::Path::new(file).file_name()
        {
            let name = name.to_string_lossy();
            if let Ok(mut segments) = url.path_segments_mut() {
                segments.pop_if_empty().push(&name);
            }
        }
        return Ok((Payload::Data { content: vec![form::file(file)], content_type: None }, Method::PUT));
    }
    if !flags.data.is_empty() {
        let mut content = Vec::new();
        for data in &flags.data {
            if !content.is_empty() {
                content.push(Content::Bytes("&".into()));
            }
            content.push(match data.strip_prefix('@') {
                Some(file) => form::file(file),
                None => Content::Bytes(data.clone().into()),
            });
        }
        let content_type = Some("application/x-www-form-urlencoded".to_owned());
        return Ok((Payload::Data { content, content_type }, Method::POST));
    }
    if flags.form.is_empty() {
        return Err(Failure::usage("there is nothing to send").hint("add -F 'file=@holiday.jpg', -d @file or -T file"));
    }
    let parts =
        flags.form.iter().map(|part| form::parse_part(part)).collect::<Result<_, _>>().map_err(Failure::usage)?;
    Ok((Payload::Form(parts), Method::POST))
}

/// What proves who asks, and nothing else.
pub fn credentials(header: &[String], cookie: &[String], user: Option<&str>) -> Result<Credentials, Failure> {
    let flags = RequestFlags { header: header.to_vec(), cookie: cookie.to_vec(), ..RequestFlags::default() };
    let (fields, credentials) = headers(&flags, user)?;
    match fields.first() {
        Some((name, _)) => Err(Failure::usage(format!("-H may only be Authorization or Cookie here, not `{name}`"))),
        None => Ok(credentials),
    }
}

/// The sealed fields, and what goes to the service alone.
fn headers(flags: &RequestFlags, user: Option<&str>) -> Result<(Vec<(HeaderName, HeaderValue)>, Credentials), Failure> {
    let mut headers = Vec::new();
    let (mut authorization, mut cookies) = (None, flags.cookie.clone());
    if let Some(odd) = cookies.iter().find(|cookie| !cookie.contains('=')) {
        return Err(Failure::usage(format!("expected name=value in -b, not `{odd}`")));
    }
    if let Some(user) = user {
        let Some((name, _)) = user.split_once(':') else {
            return Err(Failure::usage(format!("expected user:password in -u, but `{user}` has no password")));
        };
        authorization = Some(secret(&format!("Basic {}", STANDARD.encode(user)), "-u", name)?);
    }
    for text in &flags.header {
        let (name, value) = match (text.split_once(':'), text.strip_suffix(';')) {
            (Some((name, value)), _) => (name, value.trim()),
            (None, Some(name)) => (name, ""),
            (None, None) => return Err(Failure::usage(format!("expected `Name: value` in -H, not `{text}`"))),
        };
        let parsed: HeaderName =
            name.trim().parse().map_err(|_| Failure::usage(format!("`{name}` in -H is not a header name")))?;
        match parsed {
            header::AUTHORIZATION => authorization = Some(secret(value, "-H", name)?),
            header::COOKIE => cookies.push(value.to_owned()),
            parsed => headers.push((parsed, secret(value, "-H", name)?)),
        }
    }
    let cookie = match cookies.is_empty() {
        true => None,
        false => Some(secret(&cookies.join("; "), "-b", "cookie")?),
    };
    Ok((headers, Credentials { authorization, cookie }))
}

/// A value that is never printed: applications have credentials in fields of any name.
fn secret(value: &str, flag: &str, name: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| Failure::usage(format!("the value of `{name}` in {flag} is not allowed in a header")))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Where the gateway is, or the gateways are.
pub fn gateway(texts: &[String]) -> Result<GatewayChoice, Failure> {
    match texts {
        [] => Ok(GatewayChoice::Auto),
        [text] if text == "auto" => Ok(GatewayChoice::Auto),
        [text] if text == "none" => Ok(GatewayChoice::None),
        [text] => origin(text).map(GatewayChoice::At),
        texts => texts.iter().map(|text| origin(text)).collect::<Result<_, _>>().map(GatewayChoice::AnyOf),
    }
}

fn origin(text: &str) -> Result<Origin, Failure> {
    text.parse().map_err(|error| {
        Failure::new(Exit::Usage, format!("`{text}` is not a gateway"), error)
            .hint("use auto, none, or a URL such as http://hoop.local:4667")
    })
}

/// A configuration with what the flags say about the network.
pub fn client_config(flags: &NetworkFlags, clock: Clock) -> ClientConfig {
    let defaults = ClientConfig::default();
    ClientConfig {
        state_dir: flags.state.clone().or_else(default_state_dir),
        ca: flags.ca.clone(),
        resolve: values::addresses(&flags.resolve),
        connect_timeout: flags.connect_timeout.map_or(defaults.connect_timeout, |span| span.0),
        clock,
        ..defaults
    }
}

/// The same, with what they say about handing over.
pub fn hand_config(flags: &HandFlags, network: &NetworkFlags, clock: Clock) -> Result<ClientConfig, Failure> {
    let patience = flags.gateway_patience.0;
    let defaults = client_config(network, clock);
    Ok(ClientConfig {
        gateway: gateway(&flags.gateway)?,
        retry_max_time: flags.retry_max_time.0,
        gateway_patience: patience,
        gateway_silence: defaults.gateway_silence.min(patience),
        service_patience: flags.service_patience.0,
        ..defaults
    })
}

/// A client that was told so. Its state has keys, so the folder is its owner's alone before anything in it is believed.
pub fn client(config: ClientConfig) -> Result<Client, Failure> {
    if let Some(folder) = config.state_dir.as_ref().filter(|folder| folder.exists()) {
        let narrowed = hoop_files::folder(folder)
            .map_err(|error| Failure::new(Exit::File, "cannot use the state folder", error))?;
        if narrowed {
            eprintln!("hoop: others could read {}; now only you can", folder.display());
        }
    }
    Client::new(config).map_err(|error| Failure::new(Exit::Usage, "cannot use the certificates to trust", error))
}

/// `$XDG_STATE_HOME/hoop`, or `~/.local/state/hoop`.
fn default_state_dir() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || folder("HOME").map(|home| home.join(".local/state"));
    Some(folder("XDG_STATE_HOME").or_else(home)?.join("hoop"))
}

/// The time that `--timeout` gives, if it does.
pub fn timeout(span: Option<values::Span>) -> Option<Duration> {
    span.map(|span| span.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceCommand;
    use crate::flags::{Command, Flags};
    use clap::Parser as _;

    fn typed(arguments: &[&str]) -> Result<Upload, Failure> {
        let flags = Flags::try_parse_from(["hoop", "push"].iter().chain(arguments)).unwrap();
        let Command::Device(DeviceCommand::Push(flags)) = flags.command else { panic!("push was typed") };
        upload(&flags.request)
    }

    #[test]
    fn credentials_are_kept_apart_from_the_headers_that_are_sealed() {
        let upload = typed(&[
            "https://photos.example/?j",
            "-F",
            "a=b",
            "-u",
            "alice:se:cret",
            "-b",
            "s=1",
            "-H",
            "Cookie: t=2",
            "-H",
            "X-Album: sea",
            "-H",
            "X-Empty;",
        ])
        .unwrap();
        assert_eq!(upload.credentials.authorization.unwrap(), "Basic YWxpY2U6c2U6Y3JldA==");
        assert_eq!(upload.credentials.cookie.unwrap(), "s=1; t=2");
        let headers: Vec<_> = upload.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(headers, [("x-album", &b"sea"[..]), ("x-empty", b"")]);
    }

    #[test]
    fn user_and_password_leave_the_url() {
        let upload = typed(&["https://alice:secret@photos.example/", "-F", "a=b"]).unwrap();
        assert_eq!(upload.url.as_str(), "https://photos.example/");
        assert_eq!(upload.credentials.authorization.unwrap(), "Basic YWxpY2U6c2VjcmV0");
    }

    #[test]
    fn the_body_decides_method_and_path_as_with_curl() {
        let put = typed(&["https://photos.example/dav/", "-T", "d/ä b.jpg"]).unwrap();
        assert_eq!((put.method, put.url.path()), (Method::PUT, "/dav/%C3%A4%20b.jpg"));
        let put = typed(&["https://photos.example/name", "-T", "a.jpg"]).unwrap();
        assert_eq!(put.url.path(), "/name");
        let post = typed(&["https://photos.example/", "-d", "a=1", "-d", "@file", "-X", "PATCH"]).unwrap();
        assert_eq!(post.method, Method::PATCH);
        let Payload::Data { content, content_type } = post.payload else { panic!("data was given") };
        let text = |text: &'static str| Content::Bytes(text.into());
        assert_eq!(content, [text("a=1"), text("&"), Content::File("file".into())]);
        assert_eq!(content_type.unwrap(), "application/x-www-form-urlencoded");
    }

    #[test]
    fn what_means_nothing_is_a_usage_error_that_names_the_flag() {
        for (arguments, words) in [
            (&["-F", "a=b"][..], "the URL is missing"),
            (&["photos.example", "-F", "a=b"], "is not a URL"),
            (&["https://photos.example/"], "nothing to send"),
            (&["https://photos.example/", "-F", "ab"], "name=value in -F"),
            (&["https://photos.example/", "-F", "a=b", "-H", "oops"], "in -H"),
            (&["https://photos.example/", "-F", "a=b", "-b", "file"], "in -b"),
            (&["https://photos.example/", "-F", "a=b", "-u", "alice"], "in -u"),
        ] {
            let failure = typed(arguments).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message().contains(words), "{}", failure.message());
        }
        let gateway = |texts: &[&str]| gateway(&texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(gateway(&["hoop.local"]).is_err());
        assert!(gateway(&["none", "http://192.0.2.1:4667"]).is_err());
        assert_eq!(gateway(&["none"]).unwrap(), GatewayChoice::None);
        let two = ["http://192.0.2.1:4667", "http://192.0.2.2:4667"];
        assert_eq!(gateway(&two).unwrap(), GatewayChoice::AnyOf(two.map(|text| text.parse().unwrap()).into()));
    }
}
