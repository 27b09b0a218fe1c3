//! Known answers: the example log of Certificate Transparency, and our own leaves as computed by an independent program.

use super::super::{
    Consistency, Frontier, Inclusion, NodeId, Nodes, ProofError, empty_root, leaf_hash, node_hash,
    root,
};
use super::{All, Digest};

/// The eight entries of the example that implementations of RFC 6962 and RFC 9162 share.
const EXAMPLE: [&str; 8] = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
];

/// Its nodes, from entries of any length.
struct Example;

impl Nodes for Example {
    type Error = ProofError;

    fn node(&mut self, NodeId { height, index }: NodeId) -> Result<Digest, ProofError> {
        let Some(height) = height.checked_sub(1) else {
            let entry = hex::decode(EXAMPLE[usize::try_from(index).unwrap()]).unwrap();
            return Ok(Digest::of(&[&[0], entry.as_slice()].concat()));
        };
        let left = self.node(NodeId { height, index: 2 * index })?;
        Ok(node_hash(&left, &self.node(NodeId { height, index: 2 * index + 1 })?))
    }
}

fn of_hex(text: &str) -> Digest {
    Digest::from_bytes(hex::decode(text).unwrap().try_into().unwrap())
}

fn all_of_hex<const N: usize>(texts: [&str; N]) -> Vec<Digest> {
    texts.into_iter().map(of_hex).collect()
}

#[test]
fn the_roots_of_the_example_log_are_the_published_ones() {
    let roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    for (size, expected) in (1..).zip(roots) {
        assert_eq!(root(&mut Example, size), Ok(of_hex(expected)), "{size}");
    }
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(empty_root(), of_hex(nothing));
}

#[test]
fn the_proofs_of_the_example_log_are_the_published_ones() {
    let path = |seq, size| Inclusion::build(&mut Example, seq, size).unwrap().path;
    assert_eq!(path(1, 1), Vec::new());
    assert_eq!(
        path(6, 8),
        all_of_hex([
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ])
    );
    assert_eq!(
        path(3, 3),
        all_of_hex(["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",])
    );
    assert_eq!(
        path(2, 5),
        all_of_hex([
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ])
    );
    let path = |from, to| Consistency::build(&mut Example, from, to).unwrap().path;
    assert_eq!(path(1, 1), Vec::new());
    assert_eq!(
        path(1, 8),
        all_of_hex([
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ])
    );
    assert_eq!(
        path(6, 8),
        all_of_hex([
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ])
    );
    assert_eq!(
        path(2, 5),
        all_of_hex([
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ])
    );
}

/// Logs in the field are permanent: this fails when the hashing changes.
#[test]
fn entries_are_hashed_as_they_always_were() {
    let mut frontier = Frontier::new();
    let roots = [
        "7f9c9e31ac8256ca2f258583df262dbc7d6f68f2a03043d5c99a4ae5a7396ce9",
        "28fb81e496897e0ce886f08602392e9239b65c659041e5202163e58ad898f444",
        "ba8d94b7fbcecae7b81c4c80574fe24734a6917bf9c1ecd66ff3e0c34ead4620",
        "fdea52008cdae79fa8bf806261959e23f5e11681646a2fa2bc9b5e56b32030a2",
        "85e20cac1f02fda7bcdb2fc3f908568c57018c77815f1fa361acad13994f08bf",
        "380272ed524daf3398067faf4717782ba90805d4823ea6e1e594668c9fd40bba",
        "7318881c41fce3c1de3640df8e8c110c93f43f686b74204a9d1ad5b8c71c2047",
        "f907f23f76aa01b755a614d31ef9832909f44638b4590073301e61e6d01f9a1d",
    ];
    for (number, expected) in (0..8).zip(roots) {
        frontier.append(&[number; 32], &mut |_, _| {});
        assert_eq!(frontier.root(), of_hex(expected), "{number}");
    }
    let first = "7f9c9e31ac8256ca2f258583df262dbc7d6f68f2a03043d5c99a4ae5a7396ce9";
    assert_eq!(leaf_hash(&[0; 32]), of_hex(first));
    // The tests' own tree agrees with the other program too.
    let (_, frontier) = All::of(3);
    let third = "41ad1a1017aff0be4b275a7972cabfcb6af19fa25d422ec237bb7dd70302ccbe";
    assert_eq!(frontier.root(), of_hex(third));
}
