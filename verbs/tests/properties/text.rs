//! What a peer or a file sends as text.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use verbs::*;

use crate::for_all;

fn gids() -> impl Strategy<Value = Gid> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(Gid::from_bytes),
        any::<[u8; 4]>().prop_map(|ip| std::net::Ipv4Addr::from(ip).into())
    ]
}

fn mtus() -> impl Strategy<Value = Mtu> {
    (1u32..=5).prop_map(Mtu::from_raw)
}

fn endpoints() -> impl Strategy<Value = Endpoint> {
    let gid = proptest::option::of(gids().prop_filter("no address", |gid| !gid.is_unspecified()));
    (0u32..1 << 24, 0u32..1 << 24, any::<u16>(), gid, proptest::option::of(mtus())).prop_map(
        |(qp_num, psn, lid, gid, mtu)| {
            let mut endpoint = Endpoint::new(qp_num, psn);
            (endpoint.lid, endpoint.gid, endpoint.mtu) = (lid, gid, mtu);
            endpoint
        },
    )
}

fn remote_slices() -> impl Strategy<Value = RemoteSlice> {
    let words = prop_oneof![any::<u64>(), 0u64..8192, (u64::MAX - 8192)..=u64::MAX];
    (words.clone(), words, any::<u32>())
        .prop_filter_map("past the end of the address space", |(address, length, rkey)| {
            RemoteSlice::new(address, length, rkey)
        })
}

/// Text that is nearly right: some of a value's own, with characters changed, put in and taken out.
fn damaged(text: String) -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), any::<char>(), 0..4);
    proptest::collection::vec(change, 1..4).prop_map(move |changes| {
        let mut characters: Vec<char> = text.chars().collect();
        for (place, character, what) in changes {
            if characters.is_empty() {
                break;
            }
            let place = place.index(characters.len());
            match what {
                0 => characters[place] = character,
                1 => characters.insert(place, character),
                2 => drop(characters.remove(place)),
                _ => characters[place] = ['0', 'F', '+', '-', ':', ' ', '.', '\0'][place % 8],
            }
        }
        characters.into_iter().collect()
    })
}

/// A value is read from its own text, as text and by serde.
fn is_read_again<T>(value: T) -> Result<(), TestCaseError>
where
    T: Display + FromStr<Err = Error> + PartialEq + Debug + Serialize + DeserializeOwned,
{
    let text = value.to_string();
    prop_assert_eq!(&text.parse::<T>().unwrap(), &value);
    let json = serde_json::to_string(&value).unwrap();
    prop_assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value);
    Ok(())
}

/// Whatever the text: it is refused with the text in the message, or it means a value
/// whose own text means the same. Serde agrees.
fn is_read_or_refused<T>(text: &str) -> Result<(), TestCaseError>
where
    T: Display + FromStr<Err = Error> + PartialEq + Debug + Serialize + DeserializeOwned,
{
    let by_serde = serde_json::from_str::<T>(&serde_json::to_string(text).unwrap());
    match text.parse::<T>() {
        Ok(value) => {
            prop_assert_eq!(&by_serde.unwrap(), &value);
            is_read_again(value)
        }
        Err(error) => {
            prop_assert!(by_serde.is_err());
            let quoted = format!("{text:?}");
            prop_assert!(matches!(&error, Error::Parse { text: of, .. } if of == text), "{:?}", error);
            prop_assert!(error.to_string().starts_with(&quoted), "{}", error);
            Ok(())
        }
    }
}

#[test]
fn what_is_sent_is_what_is_read() {
    for_all((endpoints(), gids(), remote_slices()), |(endpoint, gid, slice)| {
        is_read_again(endpoint)?;
        is_read_again(gid)?;
        is_read_again(slice)?;
        Ok(())
    });
}

#[test]
fn any_text_is_read_or_refused() {
    for_all(any::<String>(), |text| {
        is_read_or_refused::<Endpoint>(&text)?;
        is_read_or_refused::<Gid>(&text)?;
        is_read_or_refused::<RemoteSlice>(&text)?;
        Ok(())
    });
}

#[test]
fn text_that_is_nearly_right_is_read_or_refused() {
    for_all(
        (
            endpoints().prop_flat_map(|endpoint| damaged(endpoint.to_string())),
            gids().prop_flat_map(|gid| damaged(gid.to_string())),
            remote_slices().prop_flat_map(|slice| damaged(slice.to_string())),
        ),
        |(endpoint, gid, slice)| {
            is_read_or_refused::<Endpoint>(&endpoint)?;
            is_read_or_refused::<Gid>(&gid)?;
            is_read_or_refused::<RemoteSlice>(&slice)?;
            Ok(())
        },
    );
}

#[test]
fn text_of_the_right_form_is_of_digits_only() {
    for_all("[0-9a-fA-F+ :-]{4}:[0-9a-fA-F+-]{6}:[0-9a-fA-F]{6}:[0-9a-fA-F]{32}(:[+-]?[0-9]{3,5})?", |text| {
        let read = text.parse::<Endpoint>();
        let (numbers, mtu) = match text.match_indices(':').nth(3) {
            Some((place, _)) if text.split(':').count() == 5 => (&text[..place], Some(&text[place + 1..])),
            _ => (&text[..], None),
        };
        let is_right = numbers.split(':').map(str::len).eq([4, 6, 6, 32])
            && numbers.split(':').all(|field| field.bytes().all(|byte| byte.is_ascii_hexdigit()))
            && mtu.is_none_or(|mtu| ["256", "512", "1024", "2048", "4096"].contains(&mtu));
        prop_assert_eq!(read.is_ok(), is_right, "{}", text);
        Ok(())
    });
}

#[test]
fn a_value_of_json_that_is_no_text_is_refused() {
    for_all((any::<i64>(), any::<Vec<u8>>(), any::<bool>()), |(number, list, flag)| {
        for json in [
            serde_json::json!(number),
            serde_json::json!(list),
            serde_json::json!(flag),
            serde_json::json!({ "lid": number }),
        ] {
            prop_assert!(serde_json::from_value::<Endpoint>(json.clone()).is_err());
            prop_assert!(serde_json::from_value::<Gid>(json.clone()).is_err());
            prop_assert!(serde_json::from_value::<RemoteSlice>(json).is_err());
        }
        Ok(())
    });
}
