//! DNS messages: what is asked, and answers without anything from outside. Every answer fits into 512 bytes, so that none is
//! ever cut.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::message_builder::{AdditionalBuilder, AnswerBuilder, PushError};
use domain::base::{Message, MessageBuilder, Name as WireName, ParsedName, Question, Serial, StaticCompressor, Ttl};
use domain::rdata::{A, Aaaa, Ptr, Soa};

use super::rules::Name;

/// As long as a message may be that is looked at; questions have 300 bytes.
pub const LONGEST: usize = 4096;
/// How long clients may keep an answer.
const KEPT: Ttl = Ttl::from_secs(60);
/// What is said to fit into a datagram here, by EDNS; the common value that no path cuts.
const DATAGRAM: u16 = 1232;
/// Records after the question that a client's message may have: EDNS, a signature.
const MOST_ADDITIONAL: u16 = 4;

/// What somebody wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// About a name.
    Name(Name),
    /// Which name an address has.
    Address(IpAddr),
    /// Of something that is no name of a host; as text, with everything unusual escaped.
    Other(String),
}

/// What is said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It stands for these.
    Addresses(Option<Ipv4Addr>, Option<Ipv6Addr>),
    /// It is this name's address.
    Pointer(Name),
    /// It is there, and has nothing of the kind; names below it are.
    Nothing,
    /// There is no such name. Clients stop at this one: musl waits for a better answer than REFUSED until its time is over,
    /// c-ares and Go ask again after it, glibc calls it a temporary failure, which programs try again.
    NoSuchName,
    /// Not now.
    Failure,
}

type Builder = StaticCompressor<Vec<u8>>;

/// The answer to one message, for which `judge` is asked at most once; none where it gets none: what is no question must not be
/// answered, or two servers could talk to each other for ever.
pub fn answer(bytes: &[u8], judge: impl FnOnce(&Asked) -> Verdict) -> Option<Vec<u8>> {
    let message = Message::from_slice(bytes).ok().filter(|message| !message.header().qr())?;
    let built = match read(message) {
        Err(rcode) => failure(message, rcode),
        Ok(question) => respond(message, &question, judge),
    };
    built.ok().map(|built| built.finish().into_target())
}

/// The one question of a message, or why it is not answered.
fn read(message: &Message<[u8]>) -> Result<Question<ParsedName<&[u8]>>, Rcode> {
    if message.header().opcode() != Opcode::QUERY {
        return Err(Rcode::NOTIMP);
    }
    let counts = message.header_counts();
    let right =
        counts.qdcount() == 1 && counts.ancount() == 0 && counts.nscount() == 0 && counts.arcount() <= MOST_ADDITIONAL;
    let question = message.sole_question().ok().filter(|_| right).ok_or(Rcode::FORMERR)?;
    match question.qclass() {
        Class::IN => Ok(question),
        _ => Err(Rcode::REFUSED),
    }
}

/// An answer of the header alone.
fn failure(message: &Message<[u8]>, rcode: Rcode) -> Result<AdditionalBuilder<Builder>, PushError> {
    let mut builder = start();
    head(builder.header_mut(), message, rcode);
    Ok(builder.additional())
}

fn respond(
    message: &Message<[u8]>,
    question: &Question<ParsedName<&[u8]>>,
    judge: impl FnOnce(&Asked) -> Verdict,
) -> Result<AdditionalBuilder<Builder>, PushError> {
    let edns = message.opt();
    let versions = edns.as_ref().map(|opt| opt.version());
    let mut answer = {
        let mut builder = start();
        head(builder.header_mut(), message, Rcode::NOERROR);
        let mut builder = builder.question();
        builder.push(question)?;
        builder.answer()
    };
    let known = versions.is_none_or(|version| version == 0);
    let additional = if known {
        judged(answer, question, judge(&asked(question)))?
    } else {
        answer.header_mut().set_rcode(Rcode::NOERROR);
        answer.additional()
    };
    with_edns(additional, versions.map(|_| known), edns.is_some_and(|opt| opt.dnssec_ok()))
}

fn start() -> MessageBuilder<Builder> {
    MessageBuilder::from_target(StaticCompressor::new(Vec::with_capacity(512))).expect("a vector takes a header")
}

fn head(header: &mut domain::base::Header, message: &Message<[u8]>, rcode: Rcode) {
    let asked = message.header();
    header.set_id(asked.id());
    header.set_qr(true);
    header.set_opcode(asked.opcode());
    header.set_rd(asked.rd());
    header.set_ra(true);
    header.set_cd(asked.cd());
    header.set_rcode(rcode);
}

/// Answer and authority.
fn judged(
    mut answer: AnswerBuilder<Builder>,
    question: &Question<ParsedName<&[u8]>>,
    verdict: Verdict,
) -> Result<AdditionalBuilder<Builder>, PushError> {
    let (owner, kind) = (question.qname(), question.qtype());
    let wants = |rtype| kind == rtype || kind == Rtype::ANY;
    let mut empty = true;
    match verdict {
        Verdict::Addresses(v4, v6) => {
            if let Some(v4) = v4.filter(|_| wants(Rtype::A)) {
                answer.push((owner, Class::IN, KEPT, A::new(v4)))?;
                empty = false;
            }
            if let Some(v6) = v6.filter(|_| wants(Rtype::AAAA)) {
                answer.push((owner, Class::IN, KEPT, Aaaa::new(v6)))?;
                empty = false;
            }
        }
        Verdict::Pointer(name) => {
            let name: Option<WireName<Vec<u8>>> = name.as_str().parse().ok();
            if let Some(name) = name.filter(|_| wants(Rtype::PTR)) {
                answer.push((owner, Class::IN, KEPT, Ptr::new(name)))?;
                empty = false;
            }
        }
        Verdict::Nothing => {}
        Verdict::NoSuchName => answer.header_mut().set_rcode(Rcode::NXDOMAIN),
        Verdict::Failure => {
            answer.header_mut().set_rcode(Rcode::SERVFAIL);
            return Ok(answer.additional());
        }
    }
    let mut authority = answer.authority();
    if empty {
        // RFC 2308: without it the absence is not kept.
        let root = WireName::root_slice();
        let soa = Soa::new(root, root, Serial(1), KEPT, KEPT, KEPT, KEPT);
        authority.push((root, Class::IN, KEPT, soa))?;
    }
    Ok(authority.additional())
}

/// EDNS where the question had it, RFC 6891; an unknown version is told so.
fn with_edns(
    mut additional: AdditionalBuilder<Builder>,
    edns: Option<bool>,
    dnssec: bool,
) -> Result<AdditionalBuilder<Builder>, PushError> {
    if let Some(known) = edns {
        let rcode = if known { OptRcode::from_rcode(additional.header().rcode()) } else { OptRcode::BADVERS };
        additional.opt(|opt| {
            opt.set_udp_payload_size(DATAGRAM);
            opt.set_dnssec_ok(dnssec);
            opt.set_rcode(rcode);
            Ok(())
        })?;
    }
    Ok(additional)
}

fn asked(question: &Question<ParsedName<&[u8]>>) -> Asked {
    let text = text(question.qname());
    if let Some(address) = (question.qtype() == Rtype::PTR).then(|| reverse(&text)).flatten() {
        return Asked::Address(address);
    }
    Name::new(&text).map_or(Asked::Other(text), Asked::Name)
}

/// A name's labels as master files write them, RFC 4343.
fn text(name: &ParsedName<&[u8]>) -> String {
    let mut text = String::new();
    for label in name.iter().filter(|label| !label.is_root()) {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label.iter() {
            match byte {
                b'.' | b'\\' => text.extend(['\\', char::from(byte)]),
                b'!'..=b'~' => text.push(char::from(byte)),
                _ => write!(text, "\\{byte:03}").expect("a string takes everything"),
            }
        }
    }
    text
}

/// The address in the name of a reverse look-up, RFC 1035 3.5 and RFC 3596 2.5.
fn reverse(name: &str) -> Option<IpAddr> {
    let name = name.to_ascii_lowercase();
    if let Some(labels) = name.strip_suffix(".in-addr.arpa") {
        let mut octets: Vec<u8> = labels.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
        octets.reverse();
        return <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    }
    let mut nibbles = name.strip_suffix(".ip6.arpa")?.split('.').rev();
    let mut bits = 0_u128;
    for _ in 0..32 {
        let nibble = nibbles.next().filter(|nibble| nibble.len() == 1)?;
        bits = bits << 4 | u128::from(u8::from_str_radix(nibble, 16).ok()?);
    }
    nibbles.next().is_none().then(|| Ipv6Addr::from_bits(bits).into())
}

#[cfg(test)]
mod tests {
    use domain::dep::octseq::OctetsBuilder as _;
    use domain::rdata::AllRecordData;
    use proptest::prelude::*;

    use super::*;

    const V4: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 0);
    const V6: Ipv6Addr = Ipv6Addr::new(0xfd53, 0x6d63, 0x7000, 1, 0, 0, 0, 1);

    fn both(_: &Asked) -> Verdict {
        Verdict::Addresses(Some(V4), Some(V6))
    }

    fn query(name: &str, kind: Rtype) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(0x1234);
        builder.header_mut().set_rd(true);
        let mut builder = builder.question();
        builder.push((name.parse::<WireName<Vec<u8>>>().unwrap(), kind)).unwrap();
        builder.finish()
    }

    /// Code, answers and whether there is a SOA.
    fn parts(bytes: &[u8]) -> (Rcode, Vec<String>, bool) {
        assert!(bytes.len() <= 512, "{}", bytes.len());
        let message = Message::from_octets(bytes).unwrap();
        assert_eq!(message.header().id(), 0x1234);
        assert!(message.header().qr() && !message.header().tc() && message.header().ra());
        let show = |record: domain::base::ParsedRecord<'_, &[u8]>| {
            let record = record.into_record::<AllRecordData<_, _>>().unwrap().unwrap();
            record.data().to_string()
        };
        let answers = message.answer().unwrap().map(|record| show(record.unwrap())).collect();
        let soa = message.authority().unwrap().count() == 1;
        (message.header().rcode(), answers, soa)
    }

    #[test]
    fn each_kind_of_record_of_a_granted_name() {
        let of = |kind| parts(&answer(&query("a.test", kind), both).unwrap());
        assert_eq!(of(Rtype::A), (Rcode::NOERROR, vec!["198.18.1.0".into()], false));
        assert_eq!(of(Rtype::AAAA), (Rcode::NOERROR, vec!["fd53:6d63:7000:1::1".into()], false));
        assert_eq!(of(Rtype::ANY).1.len(), 2);
        for kind in [
            Rtype::HTTPS,
            Rtype::SVCB,
            Rtype::TXT,
            Rtype::MX,
            Rtype::SRV,
            Rtype::CNAME,
            Rtype::NS,
            Rtype::from_int(9999),
        ] {
            assert_eq!(of(kind), (Rcode::NOERROR, vec![], true), "{kind}");
        }
        let without_v6 = answer(&query("a.test", Rtype::AAAA), |_| Verdict::Addresses(Some(V4), None)).unwrap();
        assert_eq!(parts(&without_v6), (Rcode::NOERROR, vec![], true));
    }

    #[test]
    fn other_verdicts() {
        let of = |verdict| parts(&answer(&query("a.test", Rtype::A), |_| verdict).unwrap());
        assert_eq!(of(Verdict::NoSuchName), (Rcode::NXDOMAIN, vec![], true));
        assert_eq!(of(Verdict::Nothing), (Rcode::NOERROR, vec![], true));
        assert_eq!(of(Verdict::Failure), (Rcode::SERVFAIL, vec![], false));
        let pointer =
            answer(&query("0.1.18.198.in-addr.arpa", Rtype::PTR), |_| Verdict::Pointer(Name::new("a.test").unwrap()));
        assert_eq!(parts(&pointer.unwrap()), (Rcode::NOERROR, vec!["a.test.".into()], false));
    }

    #[test]
    fn what_is_asked() {
        let asked = |name: &str, kind| {
            let mut seen = None;
            answer(&query(name, kind), |asked| {
                seen = Some(asked.clone());
                Verdict::Nothing
            });
            seen.unwrap()
        };
        assert_eq!(asked("API.Example.Test.", Rtype::A), Asked::Name(Name::new("api.example.test").unwrap()));
        assert_eq!(asked("0.1.18.198.IN-addr.arpa", Rtype::PTR), Asked::Address(V4.into()));
        let nibbles = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.0.0.0.7.3.6.d.6.3.5.d.f.ip6.arpa";
        assert_eq!(asked(nibbles, Rtype::PTR), Asked::Address(V6.into()));
        assert_eq!(asked(".", Rtype::NS), Asked::Other(String::new()));
        assert_eq!(asked("a\\.b\\032\\255c.test", Rtype::A), Asked::Other("a\\.b\\032\\255c.test".into()));
        for name in ["1.18.198.in-addr.arpa", "256.1.18.198.in-addr.arpa", "1.0.ip6.arpa", "x.ip6.arpa"] {
            assert!(matches!(asked(name, Rtype::PTR), Asked::Name(_)), "{name}");
        }
    }

    #[test]
    fn the_question_comes_back_as_it_was_written() {
        let question = query("ApI.test", Rtype::A);
        let bytes = answer(&question, both).unwrap();
        assert_eq!(bytes[12..question.len()], question[12..]);
    }

    #[test]
    fn edns_is_answered_where_it_was_used() {
        let with = |version| {
            let mut builder = MessageBuilder::new_vec().question();
            builder.push((WireName::<Vec<u8>>::vec_from_str("a.test").unwrap(), Rtype::A)).unwrap();
            let mut builder = builder.additional();
            builder
                .opt(|opt| {
                    opt.set_udp_payload_size(4096);
                    opt.set_version(version);
                    opt.set_dnssec_ok(true);
                    opt.push_raw_option(10.into(), 8, |to| to.append_slice(&[0; 8]))
                })
                .unwrap();
            let bytes = answer(&builder.finish(), both).unwrap();
            let message = Message::from_octets(bytes).unwrap();
            let opt = message.opt().unwrap();
            assert!(opt.udp_payload_size() == DATAGRAM && opt.version() == 0 && opt.dnssec_ok());
            (opt.rcode(message.header()), message.header_counts().ancount())
        };
        assert_eq!(with(0), (OptRcode::NOERROR, 1));
        assert_eq!(with(1), (OptRcode::BADVERS, 0));
        let without = answer(&query("a.test", Rtype::A), both).unwrap();
        assert!(Message::from_octets(without).unwrap().opt().is_none());
    }

    #[test]
    fn messages_that_are_no_question() {
        let right = query("a.test", Rtype::A);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = right.clone();
            change(&mut bytes);
            answer(&bytes, |_| panic!("nobody is asked"))
                .map(|bytes| Message::from_octets(bytes).unwrap().header().rcode())
        };
        assert_eq!(changed(&|bytes| bytes.truncate(11)), None);
        assert_eq!(changed(&|bytes| bytes.clear()), None);
        assert_eq!(changed(&|bytes| bytes[2] |= 0x80), None, "an answer");
        assert_eq!(changed(&|bytes| bytes[2] = 5 << 3), Some(Rcode::NOTIMP), "an update");
        assert_eq!(changed(&|bytes| bytes[5] = 0), Some(Rcode::FORMERR), "no question");
        assert_eq!(changed(&|bytes| bytes[4..6].fill(255)), Some(Rcode::FORMERR), "65,535 questions");
        assert_eq!(changed(&|bytes| bytes[6..8].fill(255)), Some(Rcode::FORMERR), "65,535 answers");
        assert_eq!(changed(&|bytes| bytes[10..12].fill(255)), Some(Rcode::FORMERR), "65,535 additional records");
        assert_eq!(changed(&|bytes| bytes.truncate(15)), Some(Rcode::FORMERR), "cut in its name");
        assert_eq!(
            changed(&|bytes| bytes.splice(12.., [0xc0, 12, 0, 1, 0, 1]).for_each(drop)),
            Some(Rcode::FORMERR),
            "a name in itself"
        );
        assert_eq!(
            changed(&|bytes| bytes.splice(12.., [0x80, 0, 0, 1, 0, 1]).for_each(drop)),
            Some(Rcode::FORMERR),
            "a label of no kind"
        );
        let long = |labels: usize| {
            let mut bytes = right[..12].to_vec();
            bytes.extend([&[63][..], &[b'a'; 63]].concat().repeat(labels));
            bytes.extend([0, 0, 1, 0, 1]);
            bytes
        };
        assert_eq!(changed(&|bytes| *bytes = long(4)), Some(Rcode::FORMERR), "a name of 257 bytes");
        let last = right.len() - 1;
        assert_eq!(changed(&|bytes| bytes[last] = 3), Some(Rcode::REFUSED), "CHAOS");
    }

    proptest! {
        #[test]
        fn any_bytes_get_a_short_answer_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300), question: bool, verdict in 0_usize..4,
        ) {
            if question && bytes.len() > 12 {
                bytes[2] &= 0x07;
                bytes[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 1]);
            }
            let verdicts =
                [Verdict::Addresses(Some(V4), Some(V6)), Verdict::Pointer(Name::new(&"a.".repeat(126)).unwrap()), Verdict::NoSuchName,
                 Verdict::Failure];
            if let Some(answer) = answer(&bytes, |_| verdicts[verdict].clone()) {
                prop_assert!(answer.len() <= 600);
                prop_assert_eq!(&answer[..2], &bytes[..2]);
            }
        }
    }
}
