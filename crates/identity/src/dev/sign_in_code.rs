//! One-time codes for the console's development sign-in: proof that somebody can read the development key.
//!
//! Owns their form: the time of expiry, a random number and an ES256 signature over both. Does not remember used codes; anyone who accepts
//! them does. Invariant: no development token is a code, and no code is a token: the signed texts begin differently.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use p256::ecdsa::{
    Signature, SigningKey, VerifyingKey,
    signature::{Signer as _, Verifier as _},
};
use placet_types::clock::{Clock, Timestamp};

use super::{DevKey, fill_random};
use crate::error::SetupError;

/// How long a code for the development sign-in is valid, in milliseconds: ten minutes.
pub const SIGN_IN_CODE_MS: i64 = 10 * 60_000;

/// The prefix that a code's signature covers besides the code itself. A token's signature covers text that begins with `eyJ`.
const PURPOSE: &[u8] = b"placet.development-sign-in.v1\0";
const TIME_BYTES: usize = 8;
const ID_BYTES: usize = 16;
const SIGNATURE_BYTES: usize = 64;
/// The length of a code as text, in base64.
const TEXT_BYTES: usize = (TIME_BYTES + ID_BYTES + SIGNATURE_BYTES).div_ceil(3) * 4;

/// An authentic code that has not expired. It may have been used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignInCode {
    /// Its random number. The same for every text that the signature fits.
    pub id: [u8; ID_BYTES],
    /// When it expires.
    pub expires_at: Timestamp,
}

impl DevKey {
    /// A fresh code.
    ///
    /// # Errors
    /// [`SetupError::NoRandomness`] when the operating system gives no random bytes.
    pub fn sign_in_code(&self, clock: &dyn Clock) -> Result<String, SetupError> {
        let expires_at = clock.now().plus_ms(SIGN_IN_CODE_MS);
        let mut id = [0_u8; ID_BYTES];
        fill_random(&mut id)?;
        let code = SignInCode { id, expires_at };
        let signature: Signature = SigningKey::from(&self.key).sign(&code.signed());
        let mut bytes = code.body();
        bytes.extend(signature.to_bytes());
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The code that `text` is, where this key has signed it and it is still valid at `now`.
    pub fn read_sign_in_code(&self, text: &str, now: Timestamp) -> Option<SignInCode> {
        if text.len() > TEXT_BYTES {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (time, rest) = bytes.split_first_chunk::<TIME_BYTES>()?;
        let (id, signature) = rest.split_first_chunk::<ID_BYTES>()?;
        let expires_at = Timestamp::from_ms(i64::from_be_bytes(*time));
        let code = SignInCode { id: *id, expires_at };
        let signature = Signature::from_slice(signature).ok()?;
        VerifyingKey::from(SigningKey::from(&self.key)).verify(&code.signed(), &signature).ok()?;
        let left_ms = expires_at.since_ms(now);
        (1..=SIGN_IN_CODE_MS).contains(&left_ms).then_some(code)
    }
}

impl SignInCode {
    fn body(&self) -> Vec<u8> {
        [self.expires_at.as_ms().to_be_bytes().as_slice(), &self.id].concat()
    }

    fn signed(&self) -> Vec<u8> {
        [PURPOSE, &self.body()].concat()
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use p256::ecdsa::Signature;
    use placet_testkit::clock::TestClock;
    use placet_types::{clock::Timestamp, principal::PrincipalKind};

    use super::{SIGN_IN_CODE_MS, TEXT_BYTES};
    use crate::{DevKey, MintRequest};

    const NOW_MS: i64 = 1_790_000_000_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(NOW_MS).plus_ms(ms)
    }

    #[test]
    fn a_code_is_valid_for_ten_minutes_under_its_key() {
        let (key, other) = (DevKey::generate().unwrap(), DevKey::generate().unwrap());
        let code = key.sign_in_code(&TestClock::new(NOW_MS)).unwrap();
        assert_eq!(code.len(), 118);
        assert!(code.len() <= TEXT_BYTES);
        let read = key.read_sign_in_code(&code, at(0)).unwrap();
        assert_eq!(read.expires_at, at(SIGN_IN_CODE_MS));
        assert!(key.read_sign_in_code(&code, at(SIGN_IN_CODE_MS - 1)).is_some());
        assert!(key.read_sign_in_code(&code, at(SIGN_IN_CODE_MS)).is_none(), "it has expired");
        assert!(key.read_sign_in_code(&code, at(-1)).is_none(), "it would live for too long");
        assert!(other.read_sign_in_code(&code, at(0)).is_none(), "another key");
        let second = key.sign_in_code(&TestClock::new(NOW_MS)).unwrap();
        assert_ne!(key.read_sign_in_code(&second, at(0)).unwrap().id, read.id);
    }

    #[test]
    fn nothing_else_is_a_code() {
        let key = DevKey::generate().unwrap();
        let code = key.sign_in_code(&TestClock::new(NOW_MS)).unwrap();
        let request = MintRequest::new(
            "a".parse().unwrap(),
            PrincipalKind::Agent,
            "bot".parse().unwrap(),
            "placet",
        );
        let token = key.mint(&request, &TestClock::new(NOW_MS)).unwrap();
        let signature = token.rsplit('.').next().unwrap();
        let mut flipped = URL_SAFE_NO_PAD.decode(&code).unwrap();
        for part in ["", "AAAA", &token, signature, code.get(1..).unwrap(), &format!("{code}AAAA")]
        {
            assert!(key.read_sign_in_code(part, at(0)).is_none(), "{part}");
        }
        for place in [7, 20, 80] {
            flipped[place] ^= 1;
            let altered = URL_SAFE_NO_PAD.encode(&flipped);
            assert!(key.read_sign_in_code(&altered, at(0)).is_none(), "byte {place}");
            flipped[place] ^= 1;
        }
    }

    #[test]
    fn another_text_of_the_same_code_has_the_same_number() {
        let key = DevKey::generate().unwrap();
        let code = key.sign_in_code(&TestClock::new(NOW_MS)).unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&code).unwrap();
        let (body, signature) = bytes.split_at(24);
        let signature = Signature::from_slice(signature).unwrap();
        // ECDSA: (r, n - s) is valid wherever (r, s) is.
        let (r, s) = signature.split_scalars();
        let twin = Signature::from_scalars(r, -s).unwrap();
        let twin = URL_SAFE_NO_PAD.encode([body, &*twin.to_bytes()].concat());
        assert_ne!(twin, code);
        let read = |text: &str| key.read_sign_in_code(text, at(0)).unwrap();
        assert_eq!(read(&twin), read(&code));
    }
}
