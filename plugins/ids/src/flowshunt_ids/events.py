"""What can be odd about a packet, by Suricata's names: events of decoding, and of the stream engine.

Rules ask for them by `decode-event:ipv4.pkt_too_small` and `stream-event:pkt_invalid_ack`; EVE's `anomaly` names them
with their prefix (`decoder.`, `stream.`). Kernels know an event by its number.
"""

# ruff: noqa: SIM905 -- lists this long are read as text

DECODER = tuple(
    """
    afpacket.trunc_pkt ipv4.pkt_too_small ipv4.hlen_too_small ipv4.iplen_smaller_than_hlen ipv4.trunc_pkt
    ipv4.opt_invalid ipv4.opt_invalid_len ipv4.opt_malformed ipv4.opt_pad_required ipv4.opt_eol_required
    ipv4.opt_duplicate ipv4.opt_unknown ipv4.wrong_ip_version ipv4.icmpv6 icmpv4.pkt_too_small icmpv4.unknown_type
    icmpv4.unknown_code icmpv4.ipv4_trunc_pkt icmpv4.ipv4_unknown_ver icmpv6.unknown_type icmpv6.unknown_code
    icmpv6.pkt_too_small icmpv6.ipv6_unknown_version icmpv6.ipv6_trunc_pkt icmpv6.mld_message_with_invalid_hl
    icmpv6.unassigned_type icmpv6.experimentation_type ipv6.pkt_too_small ipv6.trunc_pkt ipv6.trunc_exthdr
    ipv6.exthdr_dupl_fh ipv6.exthdr_useless_fh ipv6.exthdr_dupl_rh ipv6.exthdr_dupl_hh ipv6.exthdr_dupl_dh
    ipv6.exthdr_dupl_ah ipv6.exthdr_dupl_eh ipv6.exthdr_invalid_optlen ipv6.wrong_ip_version
    ipv6.exthdr_ah_res_not_null ipv6.hopopts_unknown_opt ipv6.hopopts_only_padding ipv6.dstopts_unknown_opt
    ipv6.dstopts_only_padding ipv6.rh_type_0 ipv6.zero_len_padn ipv6.fh_non_zero_reserved_field
    ipv6.data_after_none_header ipv6.unknown_next_header ipv6.icmpv4 tcp.pkt_too_small tcp.hlen_too_small
    tcp.invalid_optlen tcp.opt_invalid_len tcp.opt_duplicate udp.pkt_too_small udp.hlen_too_small udp.hlen_invalid
    udp.len_invalid sll.pkt_too_small ethernet.pkt_too_small ppp.pkt_too_small ppp.vju_pkt_too_small
    ppp.ip4_pkt_too_small ppp.ip6_pkt_too_small ppp.wrong_type ppp.unsup_proto pppoe.pkt_too_small
    pppoe.wrong_code pppoe.malformed_tags gre.pkt_too_small gre.wrong_version gre.version0_recur
    gre.version0_flags gre.version0_hdr_too_big gre.version0_malformed_sre_hdr gre.version1_chksum
    gre.version1_route gre.version1_ssr gre.version1_recur gre.version1_flags gre.version1_no_key
    gre.version1_wrong_protocol gre.version1_malformed_sre_hdr gre.version1_hdr_too_big vlan.header_too_small
    vlan.unknown_type vlan.too_many_layers ieee8021ah.header_too_small vntag.header_too_small vntag.unknown_type
    ipraw.invalid_ip_version ltnull.pkt_too_small ltnull.unsupported_type sctp.pkt_too_small esp.pkt_too_small
    ipv4.frag_pkt_too_large ipv6.frag_pkt_too_large ipv4.frag_overlap ipv6.frag_overlap ipv6.frag_invalid_length
    ipv4.frag_ignored ipv6.frag_ignored ipv6.ipv4_in_ipv6_too_small ipv6.ipv4_in_ipv6_wrong_version
    ipv6.ipv6_in_ipv6_too_small ipv6.ipv6_in_ipv6_wrong_version mpls.header_too_small mpls.pkt_too_small
    mpls.bad_label_router_alert mpls.bad_label_implicit_null mpls.bad_label_reserved mpls.unknown_payload_type
    vxlan.unknown_payload_type geneve.unknown_payload_type erspan.header_too_small erspan.unsupported_version
    erspan.too_many_vlan_layers dce.pkt_too_small chdlc.pkt_too_small nsh.header_too_small nsh.unsupported_version
    nsh.bad_header_length nsh.reserved_type nsh.unsupported_type nsh.unknown_payload too_many_layers
    """.split()
)

STREAM = tuple(
    """
    3whs_ack_in_wrong_dir 3whs_async_wrong_seq 3whs_right_seq_wrong_ack_evasion 3whs_synack_in_wrong_direction
    3whs_synack_resend_with_diff_ack 3whs_synack_resend_with_diff_seq 3whs_synack_toserver_on_syn_recv
    3whs_synack_with_wrong_ack 3whs_synack_flood 3whs_synack_tfo_data_ignored 3whs_syn_resend_diff_seq_on_syn_recv
    3whs_syn_toclient_on_syn_recv 3whs_syn_flood 3whs_wrong_seq_wrong_ack 3whs_ack_data_inject
    4whs_synack_with_wrong_ack 4whs_synack_with_wrong_syn 4whs_wrong_seq 4whs_invalid_ack
    closewait_ack_out_of_window closewait_fin_out_of_window closewait_pkt_before_last_ack closewait_invalid_ack
    closing_ack_wrong_seq closing_invalid_ack est_packet_out_of_window est_pkt_before_last_ack est_synack_resend
    est_synack_resend_with_diff_ack est_synack_resend_with_diff_seq est_synack_toserver est_syn_resend
    est_syn_resend_diff_seq est_syn_toclient est_invalid_ack est_ack_zwp_data fin_invalid_ack fin1_ack_wrong_seq
    fin1_fin_wrong_seq fin1_invalid_ack fin2_ack_wrong_seq fin2_fin_wrong_seq fin2_invalid_ack fin_but_no_session
    fin_out_of_window fin_syn lastack_ack_wrong_seq lastack_invalid_ack rst_but_no_session timewait_ack_wrong_seq
    timewait_invalid_ack shutdown_syn_resend pkt_invalid_timestamp pkt_invalid_ack pkt_broken_ack rst_invalid_ack
    rst_with_data pkt_retransmission pkt_spurious_retransmission pkt_bad_window_update suspected_rst_inject
    wrong_thread reassembly_segment_before_base_seq reassembly_no_segment reassembly_seq_gap
    reassembly_overlap_different_data reassembly_depth_reached reassembly_insert_memcap reassembly_insert_limit
    reassembly_insert_invalid reassembly_urgent_oob_limit_reached
    """.split()
)

NAMES = (*(f"stream.{name}" for name in STREAM), *(f"decoder.{name}" for name in DECODER))
"""All events; an event's number is its place."""

_NUMBERS = {name: number for number, name in enumerate(NAMES)}


def number(name: str) -> int:
    """The number of an event by its full name. Raises KeyError for a name that there is not."""
    return _NUMBERS[name]


def find(keyword: str, value: str) -> int | None:
    """The event that a rule's keyword (`decode-event`, `stream-event` and their older spellings) asks for, or None.

    The prefix may be written out or not; case doesn't matter.
    """
    kind = "stream" if keyword.startswith("stream") else "decoder"
    name = value.strip().lower()
    return _NUMBERS.get(name if name.startswith(f"{kind}.") else f"{kind}.{name}")
