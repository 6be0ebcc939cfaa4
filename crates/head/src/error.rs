//! How large a head may be, and what can be wrong with one: [`HeadError`].

/// The most bytes of a section, and of what it decodes to: names, values, and 32 more for each field (RFC 9114 §4.2.2). Browsers and
/// servers stop far below, at 8 to 64 KiB, so nothing that works otherwise fails here.
pub const HEAD_MAX: usize = 256 * 1024;

/// The most fields of a head, those for method, URI and status included: more than servers accept (Apache: 100).
pub const FIELDS_MAX: usize = 256;

/// Why bytes are no head, or a head cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeadError {
    /// The section ends within a field line.
    #[error("the head ends within a field")]
    Truncated,
    /// A number that does not fit, or a length that is not in its shortest form.
    #[error("a number in the head is too large or too long")]
    Number,
    /// A representation that refers to a dynamic table (RFC 9204 §4.5); there is none.
    #[error("the head refers to a dynamic table")]
    DynamicTable,
    /// An index beyond the static table, or a name reference to none of its entries.
    #[error("the static table has no entry {0}")]
    Index(u64),
    /// A Huffman code with the symbol EOS, or with a wrong or too long padding (RFC 7541 §5.2).
    #[error("a string's Huffman code is malformed")]
    Huffman,
    /// The section, or what it decodes to, is longer than [`HEAD_MAX`].
    #[error("the head is longer than {HEAD_MAX} bytes")]
    TooLong,
    /// There are more field lines than [`FIELDS_MAX`].
    #[error("the head has more than {FIELDS_MAX} fields")]
    TooManyFields,

    /// A field without a name.
    #[error("a field has an empty name")]
    NameEmpty,
    /// A name with upper-case letters (RFC 9114 §4.2).
    #[error("a field's name has upper-case letters")]
    NameUpperCase,
    /// A name with a byte that no token has (RFC 9110 §5.1).
    #[error("a field's name has a byte that names do not have")]
    Name,
    /// A value with a control character (RFC 9110 §5.5).
    #[error("a field's value has a byte that values do not have")]
    Value,
    /// A value with a space or a tab at its beginning or end (RFC 9110 §5.5).
    #[error("a field's value begins or ends with white space")]
    ValueSpace,
    /// A field that is about the connection (RFC 9114 §4.2).
    #[error("the field {0} is about a connection and not part of a head")]
    ConnectionSpecific(&'static str),
    /// `te` with another value than `trailers` (RFC 9114 §4.2).
    #[error("the field te has another value than trailers")]
    Te,
    /// `host`, which `:authority` says.
    #[error("the field host is in the head, which names its authority already")]
    Host,
    /// `content-length` that is not a number, or several that differ (RFC 9110 §8.6).
    #[error("the field content-length is not one number")]
    ContentLength,

    /// A pseudo-header field that is missing (RFC 9114 §4.3).
    #[error("the pseudo-header field {0} is missing")]
    PseudoMissing(&'static str),
    /// A pseudo-header field that comes twice.
    #[error("the pseudo-header field {0} comes twice")]
    PseudoRepeated(&'static str),
    /// A pseudo-header field that this kind of message does not have.
    #[error("the head has a pseudo-header field that its kind of message does not have")]
    PseudoUnknown,
    /// A pseudo-header field after a regular one.
    #[error("a pseudo-header field comes after a regular field")]
    PseudoLate,
    /// A method that is not a token.
    #[error("the method is not a token")]
    Method,
    /// CONNECT: it has neither scheme nor path, and is none of the requests that heads are for.
    #[error("the method is CONNECT")]
    Connect,
    /// A scheme other than http and https, or not in lower case.
    #[error("the scheme is neither http nor https")]
    Scheme,
    /// An authority that is not a host with or without a port (RFC 3986 §3.2).
    #[error("the authority is not a host with or without a port")]
    Authority,
    /// An authority with user information, which is deprecated for http and https (RFC 9110 §4.2.4).
    #[error("the authority has user information")]
    UserInfo,
    /// A path that does not begin with `/`, or with a byte that paths do not have. `*` is one for OPTIONS.
    #[error("the path does not begin with a slash or has a byte that paths do not have")]
    Path,
    /// A status that is not three digits from 100 to 599.
    #[error("the status is not a number from 100 to 599")]
    Status,
    /// The status 101, which HTTP/3 does not have (RFC 9114 §4.5).
    #[error("the status is 101, which only a connection can switch by")]
    SwitchingProtocols,
}
