//! How the parties of an explained call proved who they are, from the command line.
//!
//! Owns the options. What they mean is `placet-policy`'s.

use clap::Args as ClapArgs;
use placet_policy::cases::CaseProof;
use placet_types::proof::{AuthType, ShownClaims};

use crate::failure::Failure;

/// How both proved who they are.
#[derive(Debug, ClapArgs)]
pub(super) struct ProofArgs {
    /// As a caller that is no verified workload: `context.req.attested` is false.
    #[arg(long)]
    unattested: bool,
    /// What the caller proved who it is with: jwt, bound_jwt, actor_claim, jwt_svid, x509, x509_svid, development.
    /// [default: jwt_svid with a SPIFFE id, else jwt]
    #[arg(long, value_name = "TYPE", value_parser = auth_type)]
    auth_type: Option<AuthType>,
    /// The caller's workload identity, of an SVID.
    #[arg(long, value_name = "SPIFFE-ID")]
    spiffe_id: Option<String>,
    /// A claim of the caller's token that policies see; again for more texts of it.
    #[arg(long, value_name = "NAME=TEXT")]
    claim: Vec<String>,
    /// A claim of the user's token that policies see; again for more texts of it.
    #[arg(long, value_name = "NAME=TEXT", requires = "user")]
    user_claim: Vec<String>,
    /// The scopes that the user granted.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', requires = "user")]
    scopes: Vec<String>,
}

impl ProofArgs {
    pub(super) const fn attested(&self) -> bool {
        !self.unattested
    }

    pub(super) fn caller(&self) -> Result<CaseProof, Failure> {
        Ok(CaseProof {
            auth_type: self.auth_type.unwrap_or(match self.spiffe_id {
                Some(_) => AuthType::JwtSvid,
                None => AuthType::Jwt,
            }),
            subject: self.spiffe_id.clone(),
            claims: claims("--claim", &self.claim)?,
            ..CaseProof::default()
        })
    }

    pub(super) fn delegation(&self) -> Result<CaseProof, Failure> {
        Ok(CaseProof {
            scopes: self.scopes.iter().cloned().collect(),
            claims: claims("--user-claim", &self.user_claim)?,
            ..CaseProof::default()
        })
    }
}

fn claims(option: &str, pairs: &[String]) -> Result<ShownClaims, Failure> {
    let mut claims = ShownClaims::new();
    for pair in pairs {
        let (name, text) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("`{option} {pair}` is not name=text")))?;
        claims.entry(name.to_owned()).or_default().insert(text.to_owned());
    }
    Ok(claims)
}

fn auth_type(text: &str) -> Result<AuthType, String> {
    let names = AuthType::ALL.map(AuthType::as_str);
    let found = AuthType::ALL.into_iter().find(|one| one.as_str() == text);
    found.ok_or_else(|| format!("it must be one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use placet_types::proof::AuthType;

    use super::ProofArgs;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        proof: ProofArgs,
        #[arg(long)]
        user: Option<String>,
    }

    fn line(words: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(words.split_whitespace()))
    }

    #[test]
    fn options_become_the_proofs_of_a_case() {
        let plain = line("").unwrap().proof;
        assert!(plain.attested() && plain.caller().unwrap().auth_type == AuthType::Jwt);
        let of = "--unattested --spiffe-id spiffe://a/b --claim team=x --claim team=y --user ana --user-claim dep=z --scopes r,w";
        let line = line(of).unwrap();
        assert_eq!(line.user.as_deref(), Some("ana"));
        let (caller, user) = (line.proof.caller().unwrap(), line.proof.delegation().unwrap());
        assert!(!line.proof.attested() && caller.auth_type == AuthType::JwtSvid);
        assert_eq!(caller.subject.as_deref(), Some("spiffe://a/b"));
        assert_eq!(caller.claims["team"].len(), 2);
        assert!(user.claims["dep"].contains("z") && user.scopes.len() == 2);
    }

    #[test]
    fn options_that_cannot_be_meant_are_refused() {
        assert!(line("--auth-type telepathy").is_err());
        assert!(line("--user-claim a=b").is_err(), "there is no user");
        assert!(line("--claim team").unwrap().proof.caller().is_err());
    }
}
