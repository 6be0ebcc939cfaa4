//! Fields that a user adds to requests: [`Fields`].

use crate::base::exit::{Exit, Failure};
use hoop_units::plain;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// What `hoop get` says itself, or what holds for one hop alone.
const OWN: [&str; 19] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "hoop-deadline",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Who knows these can pose as the user.
const SECRET: [&str; 2] = ["authorization", "cookie"];

/// The longest file of fields, in bytes: as much as a head may have.
const FILE_MAX: u64 = 64 << 10;

/// Fields for the server of the URL that was asked for, and for no other that it redirects to.
#[derive(Clone, Default, Debug)]
pub struct Fields(HeaderMap);

impl Fields {
    /// Those of these arguments: each is `Name: value`, or `@FILE` with one in each line.
    pub fn of(arguments: &[String]) -> Result<Self, Failure> {
        let mut fields = Self::default();
        for argument in arguments {
            let Some(path) = argument.strip_prefix('@') else {
                fields.add(argument, true)?;
                continue;
            };
            let text = read(Path::new(path))
                .map_err(|error| Failure::new(Exit::File, format!("cannot read {}", plain::line(path)), error))?;
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            lines.try_for_each(|line| fields.add(line, false))?;
        }
        Ok(fields)
    }

    /// `is_shown`: other users can see it in the list of processes.
    fn add(&mut self, line: &str, is_shown: bool) -> Result<(), Failure> {
        let wrong = || Failure::usage("a field is `Name: value`, or `@FILE` with one in each line");
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        if OWN.contains(&name.as_str()) {
            return Err(Failure::usage(format!("`hoop get` says {name} itself, or it is for one connection alone")));
        }
        if is_shown && SECRET.contains(&name.as_str()) {
            let failure = Failure::usage(format!(
                "{name} on the command line is refused: other users could see it in the list of processes"
            ));
            return Err(failure.hint("put the line into a file of yours, and give its name: -H @FILE"));
        }
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
        value.set_sensitive(!is_shown);
        self.0.append(name, value);
        Ok(())
    }

    /// Puts them into a request, instead of its own of the same names.
    pub fn put(&self, headers: &mut HeaderMap) {
        self.0.keys().for_each(|name| drop(headers.remove(name)));
        for (name, value) in &self.0 {
            headers.append(name, value.clone());
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_MAX} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<Fields, Failure> {
        Fields::of(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn fields_come_from_the_command_line_and_from_files_and_stand_instead_of_others() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# mine\n\nCookie: a=1\nAuthorization:Basic eDp5\n").unwrap();
        let fields = of(&["X-A: 1", "x-a:2", "Accept: text/plain", &format!("@{}", file.path().display())]).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("*/*"));
        fields.put(&mut headers);
        let all = |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((all("x-a"), all("accept")), (vec!["1", "2"], vec!["text/plain"]));
        assert_eq!((all("cookie"), all("authorization")), (vec!["a=1"], vec!["Basic eDp5"]));
    }

    #[test]
    fn what_is_no_field_or_another_users_to_see_is_refused() {
        for wrong in ["", "X-A", "X A: 1", ": 1", "X-A: 1\r\nB: 2", "Host: x", "range: bytes=0-", "Cookie: a=1", "@/"] {
            assert!(of(&[wrong]).is_err(), "{wrong}");
        }
    }
}
