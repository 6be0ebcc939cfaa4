//! RFC 9111 case by case. The cases are those of the public list of cache tests (http-tests/cache-tests), by their names there; where ours differs on purpose, `docs/edge.md` says so.

use crate::house::House;
use crate::scripted::{Answer, Origin};

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// It is answered from the cache, and nobody is asked.
    Hit,
    /// The origin answers.
    Miss,
    /// The origin is asked whether what is there is as it was, and it is.
    Validated,
    /// The origin fails, and what is there is given.
    Stale,
    /// The origin fails.
    Fails,
    /// Nobody is asked, and nothing is given.
    Refused,
}

use Then::{Fails, Hit, Miss, Refused, Stale, Validated};

/// Name; what the first request has; what it is answered; what the second has; what becomes of that.
type Pair = (&'static str, &'static str, &'static str, &'static str, Then);

const PAIRS: &[Pair] = &[
    // ---- freshness ----
    ("freshness-none", "", "", "", Miss),
    ("freshness-max-age", "", "Cache-Control: max-age=3600", "", Hit),
    ("freshness-max-age-stale", "", "Cache-Control: max-age=2 | Date: @-3 | Template-A: 1", "", Miss),
    ("freshness-max-age-0", "", "Cache-Control: max-age=0", "", Miss),
    ("freshness-max-age-max-minus-1", "", "Cache-Control: max-age=2147483647", "", Hit),
    ("freshness-max-age-max", "", "Cache-Control: max-age=2147483648", "", Hit),
    ("freshness-max-age-max-plus-1", "", "Cache-Control: max-age=2147483649", "", Hit),
    ("freshness-max-age-max-plus", "", "Cache-Control: max-age=99999999999", "", Hit),
    ("freshness-max-age-age", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 7200", "", Miss),
    ("freshness-max-age-date", "", "Date: @-7200 | Cache-Control: max-age=3600", "", Miss),
    ("freshness-max-age-expires", "", "Cache-Control: max-age=3600 | Expires: @-7200 | Date: @0", "", Hit),
    ("freshness-max-age-expires-invalid", "", "Cache-Control: max-age=3600 | Expires: 0 | Date: @0", "", Hit),
    ("freshness-max-age-0-expires", "", "Expires: @3600 | Cache-Control: max-age=0 | Date: @0", "", Miss),
    ("freshness-max-age-extension", "", "Cache-Control: foobar, max-age=3600", "", Hit),
    ("freshness-max-age-case-insenstive", "", "Cache-Control: MaX-aGe=3600", "", Hit),
    ("freshness-max-age-negative", "", "Cache-Control: max-age=-3600", "", Miss),
    ("freshness-s-maxage-shared", "", "Cache-Control: s-maxage=3600", "", Hit),
    ("freshness-max-age-s-maxage-shared-longer", "", "Cache-Control: max-age=3600, s-maxage=1 | Age: 2", "", Miss),
    (
        "freshness-max-age-s-maxage-shared-longer-reversed",
        "",
        "Cache-Control: s-maxage=1, max-age=3600 | Age: 2",
        "",
        Miss,
    ),
    (
        "freshness-max-age-s-maxage-shared-longer-multiple",
        "",
        "Cache-Control: max-age=3600 | Cache-Control: s-maxage=1 | Age: 2",
        "",
        Miss,
    ),
    ("freshness-max-age-s-maxage-shared-shorter", "", "Cache-Control: max-age=1, s-maxage=3600 | Age: 2", "", Hit),
    (
        "freshness-max-age-s-maxage-shared-shorter-expires",
        "",
        "Expires: @-10 | Cache-Control: max-age=0, s-maxage=3600",
        "",
        Hit,
    ),
    // ---- how Cache-Control is read ----
    ("freshness-max-age-two-fresh-stale-sameline", "", "Cache-Control: max-age=1800, max-age=1 | Age: 2", "", Miss),
    (
        "freshness-max-age-two-fresh-stale-sepline",
        "",
        "Cache-Control: max-age=1800 | Cache-Control: max-age=1 | Age: 2",
        "",
        Miss,
    ),
    ("freshness-max-age-two-stale-fresh-sameline", "", "Cache-Control: max-age=1, max-age=1800 | Age: 2", "", Miss),
    ("freshness-max-age-quoted", "", "Cache-Control: max-age=\"3600\"", "", Hit),
    ("freshness-max-age-ignore-quoted", "", "Cache-Control: extension=\"max-age=3600\", max-age=1 | Age: 2", "", Miss),
    (
        "freshness-max-age-ignore-quoted-rev",
        "",
        "Cache-Control: max-age=1, extension=\"max-age=3600\" | Age: 2",
        "",
        Miss,
    ),
    ("freshness-max-age-space-after-equals", "", "Cache-Control: max-age= 3600", "", Miss),
    ("freshness-max-age-leading-zero", "", "Cache-Control: max-age=003600", "", Hit),
    ("freshness-max-age-single-quoted", "", "Cache-Control: max-age='3600'", "", Miss),
    ("freshness-max-age-decimal-five", "", "Cache-Control: max-age=3600.5", "", Miss),
    ("freshness-max-age-a100", "", "Cache-Control: max-age=a3600", "", Miss),
    ("freshness-max-age-100a", "", "Cache-Control: max-age=3600a", "", Miss),
    // ---- how Age is read ----
    ("age-parse-nonnumeric", "", "Date: @0 | Cache-Control: max-age=3600 | Age: abc", "", Hit),
    ("age-parse-negative", "", "Date: @0 | Cache-Control: max-age=3600 | Age: -7200", "", Hit),
    ("age-parse-float", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 7200.0", "", Hit),
    ("age-parse-large-minus-one", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 2147483647", "", Miss),
    ("age-parse-large", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 2147483648", "", Miss),
    ("age-parse-larger", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 2147483649", "", Miss),
    ("age-parse-suffix", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 7200, 0", "", Miss),
    ("age-parse-prefix", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 0, 7200", "", Hit),
    ("age-parse-suffix-twoline", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 7200 | Age: 0", "", Miss),
    ("age-parse-prefix-twoline", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 0 | Age: 7200", "", Hit),
    ("age-parse-dup-0", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 0, 0", "", Hit),
    ("age-parse-dup-0-twoline", "", "Date: @0 | Cache-Control: max-age=3600 | Age: 0 | Age: 0", "", Hit),
    ("age-parse-dup-old", "", "Date: @0 | Cache-Control: max-age=10000 | Age: 3600 | Age: 3600", "", Hit),
    // ---- Expires ----
    ("freshness-expires-future", "", "Expires: @2592000 | Date: @0", "", Hit),
    ("freshness-expires-past", "", "Expires: @-2592000 | Date: @0", "", Miss),
    ("freshness-expires-present", "", "Expires: @0 | Date: @0", "", Miss),
    ("freshness-expires-old-date", "", "Expires: @300 | Date: @400", "", Miss),
    ("freshness-expires-invalid", "", "Expires: 0 | Date: @0", "", Miss),
    ("freshness-expires-invalid-date", "", "Date: foo | Expires: @100", "", Hit),
    ("freshness-expires-age-slow-date", "", "Date: @-10 | Expires: @10 | Age: 25", "", Miss),
    ("freshness-expires-age-fast-date", "", "Date: @10 | Expires: @20 | Age: 15", "", Miss),
    ("freshness-expires-32bit", "", "Expires: Tue, 19 Jan 2038 14:14:08 GMT | Date: @0", "", Hit),
    ("freshness-expires-far-future", "", "Expires: Sun, 21 Nov 2286 04:46:39 GMT | Date: @0", "", Hit),
    ("freshness-expires-rfc850", "", "Expires: Thursday, 18-Aug-50 02:01:18 GMT | Date: @0", "", Hit),
    ("freshness-expires-ansi-c", "", "Expires: Mon Aug  8 02:01:18 2050 | Date: @0", "", Hit),
    ("freshness-expires-ansi-c (another weekday)", "", "Expires: Thu Aug  8 02:01:18 2050 | Date: @0", "", Miss),
    ("freshness-expires-invalid-utc", "", "Expires: Thu, 18 Aug 2050 02:01:18 UTC | Date: @0", "", Miss),
    ("freshness-expires-invalid-aest", "", "Expires: Thu, 18 Aug 2050 02:01:18 AEST | Date: @0", "", Miss),
    ("freshness-expires-invalid-2-digit-year", "", "Expires: Thu, 18 Aug 50 02:01:18 GMT | Date: @0", "", Miss),
    ("freshness-expires-invalid-no-comma", "", "Expires: Thu 18 Aug 2050 02:01:18 GMT | Date: @0", "", Miss),
    ("freshness-expires-invalid-multiple-spaces", "", "Expires: Thu, 18  Aug  2050 02:01:18 GMT | Date: @0", "", Miss),
    ("freshness-expires-invalid-date-dashes", "", "Expires: Thu, 18-Aug-2050 02:01:18 GMT | Date: @0", "", Miss),
    ("freshness-expires-invalid-time-periods", "", "Expires: Thu, 18 Aug 2050 02.01.18 GMT | Date: @0", "", Miss),
    ("freshness-expires-invalid-1-digit-hour", "", "Expires: Thu, 18 Aug 2050 2:01:18 GMT | Date: @0", "", Miss),
    (
        "freshness-expires-invalid-multiple-lines",
        "",
        "Expires: Thu, 18 Aug 2050 2:01:18 GMT | Expires: Thu, 18 Aug 2050 2:01:19 GMT | Date: @0",
        "",
        Miss,
    ),
    // ---- what an answer's Cache-Control says ----
    ("cc-resp-no-store", "", "Cache-Control: no-store", "", Miss),
    ("cc-resp-no-store-case-insensitive", "", "Cache-Control: No-StOrE", "", Miss),
    ("cc-resp-no-store-fresh", "", "Cache-Control: max-age=10000, no-store | Expires: @10000 | Date: @0", "", Miss),
    ("cc-resp-no-cache", "", "Cache-Control: max-age=10000, no-cache | Expires: @10000 | Date: @0", "", Miss),
    ("cc-resp-no-cache-case-insensitive", "", "Cache-Control: max-age=10000, No-CaChE | Expires: @10000", "", Miss),
    ("cc-resp-no-cache-revalidate", "", "Cache-Control: no-cache | ETag: \"abcd\"", "", Validated),
    (
        "cc-resp-no-cache-revalidate-fresh",
        "",
        "Cache-Control: max-age=10000, no-cache | Expires: @10000 | Date: @0 | ETag: \"abcd\"",
        "",
        Validated,
    ),
    ("cc-resp-must-revalidate-fresh", "", "Cache-Control: max-age=10000, must-revalidate | ETag: \"abcd\"", "", Hit),
    (
        "cc-resp-must-revalidate-stale",
        "",
        "Cache-Control: max-age=2, must-revalidate | Age: 3 | ETag: \"abcd\"",
        "",
        Validated,
    ),
    // ---- heuristics ----
    ("heuristic-200-cached", "", "Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-201-not_cached", "", "201 | Last-Modified: @-86400 | Date: @0", "", Miss),
    ("heuristic-202-not_cached", "", "202 | Last-Modified: @-86400 | Date: @0", "", Miss),
    ("heuristic-203-cached", "", "203 | Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-204-cached", "", "204 | Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-403-not_cached", "", "403 | Last-Modified: @-86400 | Date: @0", "", Miss),
    ("heuristic-404-cached", "", "404 | Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-405-cached", "", "405 | Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-410-cached", "", "410 | Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-414-cached", "", "414 | Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-501-cached", "", "501 | Last-Modified: @-86400 | Date: @0", "", Hit),
    ("heuristic-502-not_cached", "", "502 | Last-Modified: @-86400 | Date: @0", "", Miss),
    ("heuristic-503-not_cached", "", "503 | Last-Modified: @-86400 | Date: @0", "", Miss),
    ("heuristic-504-not_cached", "", "504 | Last-Modified: @-86400 | Date: @0", "", Miss),
    ("heuristic-599-not_cached", "", "599 | Last-Modified: @-86400 | Date: @0", "", Miss),
    ("heuristic-delta-5", "", "Last-Modified: @-5 | Date: @0", "", Validated),
    ("heuristic-delta-600", "", "Last-Modified: @-600 | Date: @0", "", Hit),
    // ---- statuses ----
    ("status-200-fresh", "", "Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-200-stale", "", "Expires: @-5000 | Last-Modified: @-100000 | Date: @0", "", Validated),
    ("status-203-fresh", "", "203 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-203-stale", "", "203 | Expires: @-5000 | Last-Modified: @-100000 | Date: @0", "", Miss),
    ("status-204-fresh", "", "204 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-204-stale", "", "204 | Expires: @-5000 | Last-Modified: @-100000 | Date: @0", "", Miss),
    ("status-301-fresh", "", "301 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-302-fresh", "", "302 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-303-fresh", "", "303 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-307-fresh", "", "307 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-308-fresh", "", "308 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-404-fresh", "", "404 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-404-stale", "", "404 | Expires: @-5000 | Last-Modified: @-100000 | Date: @0", "", Miss),
    ("status-410-fresh", "", "410 | Cache-Control: max-age=100000 | Date: @0", "", Hit),
    ("status-599-must-understand", "", "599 | Cache-Control: max-age=3600, no-store, must-understand", "", Miss),
    // ---- what a request's Cache-Control says ----
    ("ccreq-ma0", "", "Cache-Control: max-age=100000 | Age: 1", "Cache-Control: max-age=0", Miss),
    ("ccreq-ma1", "", "Cache-Control: max-age=100000 | Age: 2", "Cache-Control: max-age=1", Miss),
    ("ccreq-magreaterage", "", "Cache-Control: max-age=100000 | Age: 1800", "Cache-Control: max-age=600", Miss),
    ("ccreq-max-stale", "", "Cache-Control: max-age=2 | Age: 3", "Cache-Control: max-stale=1000", Hit),
    ("ccreq-max-stale-age", "", "Cache-Control: max-age=1500 | Age: 2000", "Cache-Control: max-stale=1000", Hit),
    ("ccreq-max-stale (too old)", "", "Cache-Control: max-age=2 | Age: 2000", "Cache-Control: max-stale=1000", Miss),
    (
        "ccreq-max-stale (must-revalidate)",
        "",
        "Cache-Control: max-age=2, must-revalidate | Age: 3",
        "Cache-Control: max-stale",
        Miss,
    ),
    (
        "ccreq-max-stale (no-cache)",
        "",
        "Cache-Control: max-age=9, no-cache | ETag: \"a\"",
        "Cache-Control: max-stale",
        Validated,
    ),
    ("ccreq-min-fresh", "", "Cache-Control: max-age=1500", "Cache-Control: min-fresh=2000", Miss),
    ("ccreq-min-fresh-age", "", "Cache-Control: max-age=1500 | Age: 1000", "Cache-Control: min-fresh=1000", Miss),
    ("ccreq-no-cache", "", "Cache-Control: max-age=3600", "Cache-Control: no-cache", Miss),
    (
        "ccreq-no-cache-lm",
        "",
        "Cache-Control: max-age=3600 | Last-Modified: @-10000 | Date: @0",
        "Cache-Control: no-cache",
        Validated,
    ),
    ("ccreq-no-cache-etag", "", "Cache-Control: max-age=3600 | ETag: \"abc\"", "Cache-Control: no-cache", Validated),
    ("ccreq-no-store", "Cache-Control: no-store", "Cache-Control: max-age=3600", "", Miss),
    ("ccreq-oic", "Cache-Control: no-store", "Cache-Control: max-age=3600", "Cache-Control: only-if-cached", Refused),
    ("ccreq-oic (it is)", "", "Cache-Control: max-age=3600", "Cache-Control: only-if-cached", Hit),
    ("ccreq-oic (stale)", "", "Cache-Control: max-age=3600 | Age: 7200", "Cache-Control: only-if-cached", Refused),
    // ---- Pragma ----
    ("pragma-request-no-cache", "", "Cache-Control: max-age=3600", "Pragma: no-cache", Miss),
    ("pragma-request-extension", "", "Cache-Control: max-age=3600", "Pragma: unrecognised-extension", Hit),
    ("pragma-response-no-cache", "", "Cache-Control: max-age=3600 | Pragma: no-cache", "", Hit),
    ("pragma-response-no-cache-heuristic", "", "Last-Modified: @-10000 | Date: @0 | Pragma: no-cache", "", Hit),
    ("pragma-response-extension", "", "Cache-Control: max-age=3600 | Pragma: unrecognised-extension", "", Hit),
    // ---- Vary ----
    ("vary-match", "Foo: 1", "Cache-Control: max-age=5000 | Vary: Foo", "Foo: 1", Hit),
    ("vary-no-match", "Foo: 1", "Cache-Control: max-age=5000 | Vary: Foo", "Foo: 2", Miss),
    ("vary-omit-stored", "", "Cache-Control: max-age=5000 | Vary: Foo", "Foo: 1", Miss),
    ("vary-omit", "Foo: 1", "Cache-Control: max-age=5000 | Vary: Foo", "", Miss),
    (
        "vary-cache-key",
        "User-Agent: 2 | Foo: 1",
        "Cache-Control: max-age=5000 | Vary: Foo",
        "User-Agent: 3 | Foo: 1",
        Hit,
    ),
    ("vary-2-match", "Foo: 1 | Bar: abc", "Cache-Control: max-age=5000 | Vary: Foo, Bar", "Foo: 1 | Bar: abc", Hit),
    ("vary-2-no-match", "Foo: 1 | Bar: abc", "Cache-Control: max-age=5000 | Vary: Foo, Bar", "Foo: 2 | Bar: abc", Miss),
    ("vary-2-match-omit", "Foo: 1 | Bar: abc", "Cache-Control: max-age=5000 | Vary: Foo, Bar", "", Miss),
    (
        "vary-3-match",
        "Foo: 1 | Bar: abc | Baz: 789",
        "Cache-Control: max-age=5000 | Vary: Foo, Bar, Baz",
        "Foo: 1 | Bar: abc | Baz: 789",
        Hit,
    ),
    (
        "vary-3-order",
        "Foo: 1 | Bar: abc | Baz: 789",
        "Cache-Control: max-age=5000 | Vary: Foo, Bar, Baz",
        "Foo: 1 | Baz: 789 | Bar: abcde",
        Miss,
    ),
    ("vary-3-omit", "Foo: 1 | Baz: 789", "Cache-Control: max-age=5000 | Vary: Foo, Bar, Baz", "Foo: 1 | Baz: 789", Hit),
    (
        "vary-no-match (one that is not keyed)",
        "User-Agent: a",
        "Cache-Control: max-age=5000 | Vary: User-Agent",
        "User-Agent: b",
        Miss,
    ),
    ("vary-star", "Foo: 1", "Cache-Control: max-age=5000 | Vary: *", "Foo: 1", Miss),
    ("vary-syntax-star-star", "Foo: 1", "Cache-Control: max-age=5000 | Vary: *, *", "Foo: 1", Miss),
    ("vary-syntax-star-star-lines", "Foo: 1", "Cache-Control: max-age=5000 | Vary: * | Vary: *", "Foo: 1", Miss),
    ("vary-syntax-empty-star", "Foo: 1", "Cache-Control: max-age=5000 | Vary: , *", "Foo: 1", Miss),
    ("vary-syntax-star-foo", "Foo: 1", "Cache-Control: max-age=5000 | Vary: *, Foo", "Foo: 1", Miss),
    ("vary-syntax-foo-star", "Foo: 1", "Cache-Control: max-age=5000 | Vary: Foo, *", "Foo: 1", Miss),
    // ---- Authorization ----
    ("other-authorization", "Authorization: FOO", "Cache-Control: max-age=100000 | Date: @0", "", Miss),
    ("other-authorization-public", "Authorization: FOO", "Cache-Control: max-age=3600, public | Date: @0", "", Hit),
    // ---- conditions ----
    ("conditional-etag-strong-generate", "", "Expires: @-5 | Date: @0 | ETag: \"abcdef\"", "", Validated),
    ("conditional-etag-weak-generate-weak", "", "Expires: @-5 | Date: @0 | ETag: W/\"abcdef\"", "", Validated),
    ("conditional-lm-stale", "", "Cache-Control: max-age=2 | Age: 3 | Last-Modified: @-3000 | Date: @0", "", Validated),
    // ---- where ours differs from what the list calls optimal ----
    ("status-299-fresh", "", "299 | Cache-Control: max-age=100000 | Date: @0", "", Miss),
    ("status-400-fresh", "", "400 | Cache-Control: max-age=100000 | Date: @0", "", Miss),
    ("status-503-fresh", "", "503 | Cache-Control: max-age=100000 | Date: @0", "", Miss),
    ("heuristic-599-cached", "", "599 | Last-Modified: @-86400 | Date: @0 | Cache-Control: public", "", Miss),
    ("status-200-must-understand", "", "Cache-Control: max-age=3600, no-store, must-understand", "", Miss),
    ("vary-cache-key (keyed all the same)", "Other: 2", "Cache-Control: max-age=5000 | Vary: Foo", "Other: 3", Miss),
    ("vary-normalise-space", "Foo: 1,2", "Cache-Control: max-age=5000 | Vary: Foo", "Foo: 1, 2", Miss),
    (
        "vary-normalise-lang-case",
        "Accept-Language: en",
        "Cache-Control: max-age=5000 | Vary: Accept-Language",
        "Accept-Language: eN",
        Miss,
    ),
    (
        "other-authorization-must-revalidate",
        "Authorization: FOO",
        "Cache-Control: max-age=3600, must-revalidate",
        "",
        Miss,
    ),
    ("other-authorization-smaxage", "Authorization: FOO", "Cache-Control: s-maxage=3600", "", Miss),
    ("other-set-cookie", "", "Cache-Control: max-age=3600 | Set-Cookie: a=b", "", Miss),
    ("freshness-expires-wrong-case-tz", "", "Expires: Thu, 18 Aug 2050 02:01:18 gMT | Date: @0", "", Miss),
    (
        "headers-omit-headers-listed-in-Cache-Control-no-cache",
        "",
        "Cache-Control: no-cache=\"a\", max-age=3600 | A: 1",
        "",
        Miss,
    ),
    (
        "stale-while-revalidate",
        "",
        "Cache-Control: max-age=1, stale-while-revalidate=3600 | Age: 2 | ETag: \"abc\"",
        "",
        Validated,
    ),
    // The list has a private cache in mind; for one device it is one.
    ("cc-resp-private-private", "", "Cache-Control: private, max-age=3600", "", Hit),
];

/// Of each request: method; what it has; what the origin would answer; what becomes of it.
type Step = (&'static str, &'static str, &'static str, Then);

const FRESH: &str = "Cache-Control: max-age=100000";
const OLD: &str = "Cache-Control: max-age=2 | Age: 3 | ETag: \"abc\"";

const STEPS: &[(&str, &[Step])] = &[
    ("invalidate-POST", &[("GET", "", FRESH, Miss), ("POST", "", "", Miss), ("GET", "", FRESH, Miss)]),
    ("invalidate-POST-failed", &[("GET", "", FRESH, Miss), ("POST", "", "500", Miss), ("GET", "", FRESH, Hit)]),
    ("invalidate-PUT", &[("GET", "", FRESH, Miss), ("PUT", "", "", Miss), ("GET", "", FRESH, Miss)]),
    ("invalidate-PUT-failed", &[("GET", "", FRESH, Miss), ("PUT", "", "500", Miss), ("GET", "", FRESH, Hit)]),
    ("invalidate-DELETE", &[("GET", "", FRESH, Miss), ("DELETE", "", "204", Miss), ("GET", "", FRESH, Miss)]),
    ("invalidate-DELETE-failed", &[("GET", "", FRESH, Miss), ("DELETE", "", "403", Miss), ("GET", "", FRESH, Hit)]),
    ("invalidate-M-SEARCH", &[("GET", "", FRESH, Miss), ("M-SEARCH", "", "", Miss), ("GET", "", FRESH, Miss)]),
    ("invalidate-M-SEARCH-failed", &[("GET", "", FRESH, Miss), ("M-SEARCH", "", "500", Miss), ("GET", "", FRESH, Hit)]),
    (
        "invalidate (a redirection)",
        &[("GET", "", FRESH, Miss), ("POST", "", "303 | Location: /x", Miss), ("GET", "", FRESH, Miss)],
    ),
    ("invalidate (not by OPTIONS)", &[("GET", "", FRESH, Miss), ("OPTIONS", "", "", Miss), ("GET", "", FRESH, Hit)]),
    (
        "vary-invalidate",
        &[
            ("GET", "Foo: 1", "Cache-Control: max-age=5000 | Vary: Foo", Miss),
            ("GET", "Foo: 2", "Cache-Control: max-age=5000 | Vary: Foo", Miss),
            ("GET", "Foo: 2", "Cache-Control: max-age=5000 | Vary: Foo", Hit),
        ],
    ),
    ("stale-503", &[("GET", "", OLD, Miss), ("GET", "", "503", Miss), ("GET", "", OLD, Validated)]),
    ("stale-close", &[("GET", "", "Cache-Control: max-age=2 | Age: 3", Miss), ("GET", "", "0", Fails)]),
    (
        "stale-sie-503",
        &[("GET", "", "Cache-Control: max-age=2, stale-if-error=60 | Age: 3", Miss), ("GET", "", "503", Stale)],
    ),
    (
        "stale-sie-close",
        &[("GET", "", "Cache-Control: max-age=2, stale-if-error=60 | Age: 3", Miss), ("GET", "", "0", Stale)],
    ),
    (
        "stale-sie-503 (too old)",
        &[("GET", "", "Cache-Control: max-age=2, stale-if-error=60 | Age: 70", Miss), ("GET", "", "503", Miss)],
    ),
    (
        "stale-sie-503 (404)",
        &[("GET", "", "Cache-Control: max-age=2, stale-if-error=60 | Age: 3", Miss), ("GET", "", "404", Miss)],
    ),
    (
        "stale-close-must-revalidate",
        &[
            ("GET", "", "Cache-Control: max-age=2, must-revalidate, stale-if-error=60 | Age: 3", Miss),
            ("GET", "", "0", Fails),
        ],
    ),
    (
        "stale-close-proxy-revalidate",
        &[
            ("GET", "", "Cache-Control: max-age=2, proxy-revalidate, stale-if-error=60 | Age: 3", Miss),
            ("GET", "", "0", Fails),
        ],
    ),
    (
        "stale-close-no-cache",
        &[
            ("GET", "", "Cache-Control: max-age=2, no-cache, stale-if-error=60 | ETag: \"a\"", Miss),
            ("GET", "", "0", Fails),
        ],
    ),
    (
        "stale-close-s-maxage=2",
        &[
            ("GET", "", "Cache-Control: max-age=2, s-maxage=2, stale-if-error=60 | Age: 3", Miss),
            ("GET", "", "0", Fails),
        ],
    ),
    (
        "304-etag-update-response-Cache-Control",
        &[
            ("GET", "", OLD, Miss),
            ("GET", "", "Cache-Control: max-age=3600 | ETag: \"abc\"", Validated),
            ("GET", "", OLD, Hit),
        ],
    ),
    (
        "304-lm-use-stored-Test-Header",
        &[
            ("GET", "", "Last-Modified: @-1000000 | Expires: @-5 | Date: @0", Miss),
            ("GET", "", "ETag: \"other\" | Cache-Control: max-age=60", Miss),
            ("GET", "", OLD, Hit),
        ],
    ),
    ("method-HEAD (from a GET)", &[("GET", "", FRESH, Miss), ("HEAD", "", FRESH, Hit), ("GET", "", FRESH, Hit)]),
    ("method-HEAD (it is not kept)", &[("HEAD", "", FRESH, Miss), ("GET", "", FRESH, Miss), ("GET", "", FRESH, Hit)]),
    ("method-POST (it is not kept)", &[("POST", "", FRESH, Miss), ("GET", "", FRESH, Miss)]),
];

/// What came of a request, and whether that is what was to come of it.
fn check(
    then: Then,
    method: &str,
    (before, after): (usize, usize),
    is_conditional: bool,
    last: &str,
    answer: &Answer,
) -> bool {
    let is_last = if method == "HEAD" { answer.body.is_empty() } else { answer.body == last };
    match then {
        Hit => after == before && is_last && answer.cache().starts_with("hoop; hit"),
        Miss => after == before + 1 && !answer.cache().contains("hit") && answer.cache().contains("fwd="),
        Validated => after == before + 1 && is_conditional && is_last && answer.cache().contains("fwd-status=304"),
        Stale => after > before && is_last && answer.cache().contains("stale-if-error"),
        Fails => after > before && answer.status == 502,
        Refused => after == before && answer.status == 504 && answer.cache() == "hoop; detail=only-if-cached",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_as_rfc_9111_says() {
    let (house, origin) = (House::new().await, Origin::new().await);
    let pairs = PAIRS.iter().map(|(name, first, answer, second, then)| {
        (*name, vec![("GET", *first, *answer, Miss), ("GET", *second, *answer, *then)])
    });
    let cases: Vec<_> = pairs.chain(STEPS.iter().map(|(name, steps)| (*name, steps.to_vec()))).collect();
    assert!(cases.len() >= 180, "{}", cases.len());
    let mut wrong = Vec::new();
    for (number, (name, steps)) in cases.into_iter().enumerate() {
        let (path, mut last) = (format!("/{number}"), String::new());
        for (step, (method, asks, answer, then)) in steps.into_iter().enumerate() {
            // A date is the same for all steps that have the same answer.
            if step == 0 || answer != PAIRS.get(number).map_or("", |pair| pair.2) {
                origin.say(&path, answer);
            }
            let before = origin.count(&path);
            let came = Answer::of(&house.says(&origin.request(method, &path, asks)).await);
            let asked = origin.asked(&path);
            let is_conditional = asked.last().is_some_and(|(_, fields)| {
                fields.contains_key("if-none-match") || fields.contains_key("if-modified-since")
            });
            if !check(then, method, (before, asked.len()), is_conditional, &last, &came) {
                wrong.push(format!(
                    "{name}, step {step}: {then:?}, asked {before} then {}: {}",
                    asked.len(),
                    came.cache()
                ));
            }
            if method == "GET" && came.status < 502 {
                last = came.body;
            }
        }
    }
    assert!(wrong.is_empty(), "{} are not so:\n{}", wrong.len(), wrong.join("\n"));
}
