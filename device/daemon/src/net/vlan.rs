//! VLAN tags of frames at a port (IEEE 802.1Q, 6.9).

use vrnic_adapter::ethernet::Joint;
use vrnic_adapter::vlans::{NotMember, Vlans};
use vrnic_packet::ethernet::{EtherType, Ethernet, TAG_LEN, vlan_of};
use vrnic_packet::reader::{Reader, Short};

use super::frame::Frame;
use super::uplinks::offload::{ADDRESSES, VlanTag, insert_tag};

/// The types of frames with tags: of customers, and of service providers (802.1ad, and QinQ).
const TAGS: [EtherType; 3] = [EtherType::VLAN, EtherType(0x88a8), EtherType(0x9100)];
/// The bits of a tag that are not the VLAN's identifier.
const PRIORITY: u16 = 0xf000;

/// Returns the tag of a frame, if it has one. A frame that is in no VLAN must have no tag by which
/// a receiver could take it for one of a VLAN: a service provider's tag, or a tag after one with a
/// priority only, which Linux removes.
///
/// # Errors
/// [`NotMember`] if it has such a tag, or ends before its type.
fn tag(frame: &Frame) -> Result<Option<u16>, NotMember> {
    let parsed = Ethernet::parse(&mut Reader::new(frame.bytes()));
    let (Ethernet { vlan: tag, .. }, kind) = parsed.map_err(|Short| NotMember)?;
    let hides = tag.and_then(vlan_of).is_none() && TAGS.contains(&kind);
    if hides { Err(NotMember) } else { Ok(tag) }
}

/// Returns whether the VLAN of a frame in the network is one of a port.
#[must_use]
pub fn admits(vlans: &Vlans, frame: &Frame) -> bool {
    *vlans == Vlans::All || tag(frame).is_ok_and(|tag| vlans.admits(tag.and_then(vlan_of)))
}

/// Returns a frame that a guest has sent as it is in the network.
///
/// # Errors
/// [`NotMember`] if the guest may not send to the frame's VLAN.
pub fn enter(vlans: &Vlans, frame: Frame) -> Result<Frame, NotMember> {
    let Vlans::Access(_) = vlans else {
        return if admits(vlans, &frame) { Ok(frame) } else { Err(NotMember) };
    };
    let tag = tag(&frame)?;
    let Some(vlan) = vlans.of_guest(tag.and_then(vlan_of))? else { return Ok(frame) };
    let priority = tag.unwrap_or_default() & PRIORITY;
    let plain = if tag.is_some() { without_tag(&frame)? } else { frame };
    let tag = VlanTag { tpid: EtherType::VLAN.0, tci: vlan | priority };
    let joint = plain.joint().map(|it| Joint { headers: it.headers + TAG_BYTES, ..it });
    insert_tag(plain.bytes(), tag).with_joint(joint).try_into().map_err(|_| NotMember)
}

/// Returns a frame of the network as a guest gets it.
///
/// # Errors
/// [`NotMember`] if the guest may not get it.
pub fn leave(vlans: &Vlans, frame: Frame) -> Result<Frame, NotMember> {
    if !admits(vlans, &frame) {
        return Err(NotMember);
    }
    if matches!(vlans, Vlans::Access(_)) { without_tag(&frame) } else { Ok(frame) }
}

/// Number of bytes of a tag.
const TAG_BYTES: u16 = TAG_LEN as u16;

/// Returns a tagged frame without its tag.
fn without_tag(frame: &Frame) -> Result<Frame, NotMember> {
    let parts = frame.bytes().split_at_checked(ADDRESSES);
    let (addresses, rest) = parts.ok_or(NotMember)?;
    let rest = rest.get(TAG_LEN..).ok_or(NotMember)?;
    let headers = |it: Joint| it.headers.saturating_sub(TAG_BYTES);
    let joint = frame.joint().map(|it| Joint { headers: headers(it), ..it });
    let plain = vrnic_adapter::ethernet::Frame::of_parts(&[addresses, rest]);
    plain.with_joint(joint).try_into().map_err(|_| NotMember)
}

#[cfg(test)]
mod tests {
    use vrnic_adapter::vlans::VlanId;

    use super::*;

    const FIVE: [u8; 4] = [0x81, 0, 0, 5];

    fn access() -> Vlans {
        Vlans::Access(VlanId::try_from(5).expect("a VLAN"))
    }

    fn trunk() -> Vlans {
        Vlans::Trunk([VlanId::try_from(5).expect("a VLAN")].into())
    }

    /// Returns a frame with these bytes after its addresses.
    fn frame(rest: &[u8]) -> Frame {
        Frame::new([&[2; 12][..], rest].concat()).expect("a frame")
    }

    #[test]
    fn a_port_of_one_vlan_adds_and_removes_its_tag() {
        let plain = frame(&[8, 0, 1, 2, 3]);
        let tagged = frame(&[&FIVE[..], &[8, 0, 1, 2, 3]].concat());
        assert_eq!(enter(&access(), plain.clone()), Ok(tagged.clone()));
        assert_eq!(leave(&access(), tagged.clone()), Ok(plain.clone()));
        // A guest keeps its priority.
        let priority = frame(&[0x81, 0, 0xe0, 0, 8, 0, 1, 2, 3]);
        assert_eq!(enter(&access(), priority), Ok(frame(&[0x81, 0, 0xe0, 5, 8, 0, 1, 2, 3])));
        assert_eq!(enter(&access(), tagged), Err(NotMember), "a guest adds no tag itself");
        assert_eq!(leave(&access(), plain), Err(NotMember));
        assert_eq!(leave(&access(), frame(&[0x81, 0, 0, 6, 8, 0])), Err(NotMember));
    }

    #[test]
    fn other_ports_change_nothing() {
        let (plain, five) = (frame(&[8, 0, 1, 2]), frame(&[0x81, 0, 0x20, 5, 8, 0]));
        let six = frame(&[0x81, 0, 0, 6, 8, 0]);
        for (vlans, passes) in [(Vlans::All, [true; 3]), (trunk(), [true, true, false])] {
            for (frame, passes) in [&plain, &five, &six].into_iter().zip(passes) {
                let expected = if passes { Ok(frame.clone()) } else { Err(NotMember) };
                assert_eq!(enter(&vlans, frame.clone()), expected);
                assert_eq!(leave(&vlans, frame.clone()), expected);
                assert_eq!(admits(&vlans, frame), passes);
            }
        }
    }

    #[test]
    fn tags_that_are_hidden_are_refused() {
        for hidden in [
            &[0x81, 0, 0, 0, 0x81, 0, 0, 9, 8, 0][..],
            &[0x81, 0, 0xe0, 0, 0x88, 0xa8, 0, 9, 8, 0],
            &[0x88, 0xa8, 0, 9, 8, 0],
            &[0x91, 0, 0, 9, 8, 0],
        ] {
            for vlans in [access(), trunk()] {
                assert_eq!(enter(&vlans, frame(hidden)), Err(NotMember), "{hidden:x?}");
                assert_eq!(leave(&vlans, frame(hidden)), Err(NotMember), "{hidden:x?}");
            }
            assert_eq!(enter(&Vlans::All, frame(hidden)), Ok(frame(hidden)));
        }
        // A guest may use tags of its own inside its VLAN.
        let inside = frame(&[0x81, 0, 0, 5, 0x81, 0, 0, 9, 8, 0]);
        assert_eq!(enter(&trunk(), inside.clone()), Ok(inside));
    }

    #[test]
    fn joined_frames_stay_joined() {
        let joint = Joint { headers: 54, segment: 300 };
        let joined = vrnic_adapter::ethernet::Frame::joined(vec![2; 700], joint);
        let plain = Frame::try_from(joined).expect("a frame");
        let tagged = enter(&access(), plain.clone()).expect("it passes");
        assert_eq!(tagged.joint(), Some(Joint { headers: 58, segment: 300 }));
        assert_eq!((tagged.count(), leave(&access(), tagged)), (plain.count(), Ok(plain)));
    }
}
