//! The Huffman code of RFC 7541 Appendix B.
//!
//! The code is canonical: within a length, codes rise with their symbols, and a longer code begins after the last shorter one. So the
//! lengths say everything, and the tables below follow from them when this is compiled.

use crate::error::HeadError;
use alloc::vec::Vec;

const SYMBOLS: usize = 257;
const EOS: u16 = 256;
const LEN_MIN: usize = 5;
const LEN_MAX: usize = 30;

/// The length of each symbol's code in bits; the last is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// What follows from [`LENGTHS`].
struct Code {
    /// Each symbol's code, in the lowest bits.
    codes: [u32; SYMBOLS],
    /// The symbols, in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// For each length, the first code of a greater length, filled up with zeros to 32 bits.
    limits: [u64; LEN_MAX + 1],
    /// For each length, its first code, and where its symbol is in `symbols`.
    firsts: [(u32, usize); LEN_MAX + 1],
}

static CODE: Code = derive();

const fn derive() -> Code {
    let mut code =
        Code { codes: [0; SYMBOLS], symbols: [0; SYMBOLS], limits: [0; LEN_MAX + 1], firsts: [(0, 0); LEN_MAX + 1] };
    let (mut next, mut place, mut len) = (0, 0, 1);
    while len <= LEN_MAX {
        next <<= 1;
        code.firsts[len] = (next, place);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == len {
                code.codes[symbol] = next;
                code.symbols[place] = symbol as u16;
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        code.limits[len] = (next as u64) << (32 - len);
        len += 1;
    }
    assert!(place == SYMBOLS && code.limits[LEN_MAX] == 1 << 32, "the code is complete");
    code
}

/// How many bytes `plain` takes when it is coded.
pub fn coded_len(plain: &[u8]) -> usize {
    plain.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the code of `plain`, padded with ones.
pub fn encode(plain: &[u8], into: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0);
    for byte in plain {
        let len = LENGTHS[usize::from(*byte)];
        bits = bits << len | u64::from(CODE.codes[usize::from(*byte)]);
        count += len;
        while count >= 8 {
            count -= 8;
            into.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        into.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

/// Appends what `coded` stands for.
///
/// # Errors
/// [`HeadError::Huffman`] if it has EOS, or if its padding is longer than 7 bits or not all ones.
pub fn decode(coded: &[u8], into: &mut Vec<u8>) -> Result<(), HeadError> {
    let mut rest = coded.iter();
    // The lowest `count` of `bits` are yet to be read.
    let (mut bits, mut count) = (0_u64, 0);
    loop {
        while count < 32 {
            let Some(byte) = rest.next() else { break };
            bits = bits << 8 | u64::from(*byte);
            count += 8;
        }
        let window = match count {
            32.. => (bits >> (count - 32)) as u32,
            // After the end, all are ones, as in the padding.
            _ => (bits << (32 - count)) as u32 | u32::MAX >> count,
        };
        let len = (LEN_MIN..LEN_MAX).find(|len| u64::from(window) < CODE.limits[*len]).unwrap_or(LEN_MAX);
        if len > count {
            return if count < 8 && window == u32::MAX { Ok(()) } else { Err(HeadError::Huffman) };
        }
        let (first, place) = CODE.firsts[len];
        let symbol = CODE.symbols[place + ((window >> (32 - len)) - first) as usize];
        if symbol == EOS {
            return Err(HeadError::Huffman);
        }
        into.push(symbol as u8);
        count -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, HeadError> {
        let mut plain = Vec::new();
        decode(coded, &mut plain).map(|()| plain)
    }

    #[test]
    fn the_examples_of_rfc_7541_read_and_write_the_same() {
        // Appendices C.4 and C.6.
        let examples = [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
            ("307", "640eff"),
            ("Mon, 21 Oct 2013 20:13:22 GMT", "d07abe941054d444a8200595040b8166e084a62d1bff"),
            ("gzip", "9bd9ab"),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ),
        ];
        for (plain, coded) in examples {
            let coded = hex::decode(coded).unwrap();
            assert_eq!(decoded(&coded).as_deref(), Ok(plain.as_bytes()));
            let mut again = Vec::new();
            encode(plain.as_bytes(), &mut again);
            assert_eq!(again, coded, "{plain}");
            assert_eq!(coded_len(plain.as_bytes()), coded.len());
        }
    }

    #[test]
    fn all_bytes_come_back() {
        let plain: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for cut in 0..plain.len() {
            let mut coded = Vec::new();
            encode(&plain[cut..], &mut coded);
            assert_eq!(decoded(&coded).as_deref(), Ok(&plain[cut..]));
        }
    }

    #[test]
    fn wrong_padding_and_eos_are_refused() {
        // `a` is 00011, and three ones fill its byte.
        assert_eq!(decoded(&[0b0001_1111]).as_deref(), Ok(&b"a"[..]));
        for coded in
            [&[0b0001_1110][..], &[0b0001_1011], &[0b0001_1111, 0xff], &[0xff], &[0xff; 3], &[0xff; 4], &[0xfe]]
        {
            assert_eq!(decoded(coded), Err(HeadError::Huffman), "{coded:x?}");
        }
        // EOS after `a`, though a whole symbol follows.
        assert_eq!(decoded(&[0x1f, 0xff, 0xff, 0xff, 0xff]), Err(HeadError::Huffman));
    }
}
