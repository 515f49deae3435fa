//! How an example is started, by its recipe in the package's manifest.

use std::collections::HashMap;
use std::ffi::OsString;

use anyhow::{Result, bail};
use serde::Deserialize;

use super::PACKAGE;
use crate::device::{Device, Devices};
use crate::workspace::Workspace;

/// Where the user's arguments go.
const ARGUMENTS: &str = "{arguments}";

/// How a program is started: `[package.metadata.run.NAME]`. A word may hold placeholders. Where one is `{arguments}`, the user's arguments go
/// there, and to that end only; else both ends get them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(super) server: Option<Vec<String>>,
    pub(super) client: Option<Vec<String>>,
    pub(super) single: Option<Vec<String>>,
    /// The TCP port on which the server listens.
    pub(super) port: Option<u16>,
    /// The connection manager's port on which the server listens.
    pub(super) cm_port: Option<u16>,
    /// The programs of the two ends, where they are not the same one.
    pub(super) programs: Option<[String; 2]>,
    /// What the program is given where the user gives no arguments. Its first words, those before an option, are given to it too where the user
    /// gives options only.
    pub(super) default: Option<Vec<String>>,
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Port {
    Tcp(u16),
    Cm(u16),
}

impl Recipe {
    pub(super) fn listens_at(&self) -> Option<Port> {
        self.port.map(Port::Tcp).or(self.cm_port.map(Port::Cm))
    }

    /// The user's arguments, or else the usual ones.
    pub(super) fn arguments(&self, users: &[OsString]) -> Vec<OsString> {
        let is_option = |word: &[u8]| word.starts_with(b"-");
        let default = self.default.iter().flatten();
        let kept = match users.first() {
            None => usize::MAX,
            Some(first) if is_option(first.as_encoded_bytes()) => {
                default.clone().take_while(|word| !is_option(word.as_bytes())).count()
            }
            Some(_) => 0,
        };
        default.take(kept).map(OsString::from).chain(users.iter().cloned()).collect()
    }

    /// The command line of an end with these `words`. `None`: the recipe has no such end.
    pub(super) fn line(
        &self,
        words: Option<&[String]>,
        users: &[OsString],
        devices: &Devices,
    ) -> Result<Option<Vec<OsString>>> {
        let all = [&self.server, &self.client, &self.single];
        let names_a_place = all.into_iter().flatten().flatten().any(|word| word == ARGUMENTS);
        let users = self.arguments(users);
        words.map(|words| arguments(words, &users, names_a_place, devices)).transpose()
    }
}

/// All examples; one without a recipe of its own runs alone, with the user's arguments.
pub(super) fn recipes(workspace: &Workspace) -> HashMap<String, Recipe> {
    let Some(package) = workspace.package(PACKAGE) else { return HashMap::new() };
    let known = package.metadata.as_ref().map(|metadata| metadata.run.clone()).unwrap_or_default();
    let programs = package.targets.iter().filter(|target| target.kind.iter().any(|kind| kind == "bin"));
    let recipe =
        |name: &str| known.get(name).cloned().unwrap_or(Recipe { single: Some(Vec::new()), ..Recipe::default() });
    programs.map(|target| (target.name.clone(), recipe(&target.name))).collect()
}

/// A recipe's words with the placeholders filled in and the user's arguments added, which go before the peer's address: that comes
/// last.
///
/// Where `names_a_place`, they go to the end that has the place, and in it.
fn arguments(words: &[String], more: &[OsString], names_a_place: bool, devices: &Devices) -> Result<Vec<OsString>> {
    let fill = |word: &String| -> Result<OsString> {
        let Devices { first, peer } = devices;
        let peer: &Device = peer.as_ref().unwrap_or(first);
        let address = |device: &Device| device.address.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
        let filled = word
            .replace("{device}", &first.name)
            .replace("{peer-device}", &peer.name)
            .replace("{address}", &address(first))
            .replace("{server-address}", &address(first))
            .replace("{peer-address}", &address(peer));
        if filled.contains('{') {
            bail!("the example's recipe has an unknown placeholder in {word:?}");
        }
        Ok(filled.into())
    };
    let place = match words.iter().position(|word| word == ARGUMENTS) {
        Some(place) => Some((place, place + 1)),
        None if names_a_place => None,
        None => {
            let is_address = |word: &String| word.starts_with('{') && word.ends_with("address}");
            let place = words.len() - usize::from(words.last().is_some_and(is_address));
            Some((place, place))
        }
    };
    let (before, after) = place.unwrap_or((words.len(), words.len()));
    let mut all = words[..before].iter().map(fill).collect::<Result<Vec<_>>>()?;
    all.extend(more.iter().filter(|_| place.is_some()).cloned());
    for word in &words[after..] {
        all.push(fill(word)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: Vec<OsString>) -> String {
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_users_arguments_go_before_the_servers_address() {
        let more = ["-n".into(), "5".into()];
        let client =
            arguments(&words("--ib-dev {peer-device} {server-address}"), &more, false, &Devices::in_guest()).unwrap();
        assert_eq!(client, ["--ib-dev", "rxe1", "-n", "5", "192.0.2.1"]);
        let server = arguments(&words("--ib-dev {device}"), &more, false, &Devices::in_guest()).unwrap();
        assert_eq!(server, ["--ib-dev", "rxe0", "-n", "5"]);
    }

    #[test]
    fn the_usual_arguments_are_given_only_where_the_user_gives_none() {
        let recipe = Recipe { default: Some(words("send bw")), ..Recipe::default() };
        assert_eq!(recipe.arguments(&[]), ["send", "bw"]);
        assert_eq!(recipe.arguments(&["read".into()]), ["read"]);
        assert!(Recipe::default().arguments(&[]).is_empty());
    }

    #[test]
    fn one_device_is_both_ends_and_an_address_it_lacks_is_this_hosts_own() {
        let device = Device { name: "mlx5_0".into(), interface: None, address: None };
        let devices = Devices { first: device, peer: None };
        let client = arguments(&words("-d {peer-device} {server-address}"), &[], false, &devices).unwrap();
        assert_eq!(client, ["-d", "mlx5_0", "127.0.0.1"]);
    }

    #[test]
    fn an_unknown_placeholder_is_an_error() {
        let error = arguments(&words("-d {devise}"), &[], false, &Devices::in_guest()).unwrap_err();
        assert!(error.to_string().contains("{devise}"), "{error}");
    }

    #[test]
    fn options_alone_go_behind_the_usual_words_and_other_words_replace_them() {
        let recipe = Recipe { default: Some(words("send bw --size 64")), ..Recipe::default() };
        assert_eq!(recipe.arguments(&["--iters".into(), "5".into()]), ["send", "bw", "--iters", "5"]);
        assert_eq!(recipe.arguments(&["read".into(), "lat".into()]), ["read", "lat"]);
        assert_eq!(recipe.arguments(&[]), ["send", "bw", "--size", "64"]);
    }

    #[test]
    fn the_users_arguments_go_to_the_end_that_has_a_place_for_them() {
        let recipe = Recipe {
            server: Some(words("--listen {address}:7475 /tmp")),
            client: Some(words("{arguments} {server-address}:7475")),
            default: Some(words("/usr/include")),
            ..Recipe::default()
        };
        let line = |words: &Option<Vec<String>>, users: &[&str]| {
            let users: Vec<_> = users.iter().map(OsString::from).collect();
            recipe.line(words.as_deref(), &users, &Devices::in_guest()).unwrap()
        };
        for (users, sent) in [
            (&[][..], "/usr/include"),
            (&["--chunk", "65536"], "/usr/include --chunk 65536"),
            (&["folder", "-n", "4"], "folder -n 4"),
        ] {
            assert_eq!(line(&recipe.server, users).unwrap(), ["--listen", "192.0.2.1:7475", "/tmp"]);
            assert_eq!(texts(line(&recipe.client, users).unwrap()), format!("{sent} 192.0.2.1:7475"));
        }
        assert_eq!(line(&recipe.single, &[]), None);
    }
}
