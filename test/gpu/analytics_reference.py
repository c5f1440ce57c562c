# SPDX-License-Identifier: Apache-2.0
"""The result that pumpgraph-example-analytics prints, computed from the query's definition on the host."""

WORD = (1 << 64) - 1
SEGMENTS, TOP = 32, 100


def mix(value):
    value = (value ^ (value >> 33)) * 0xff51afd7ed558ccd & WORD
    value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53 & WORD
    return value ^ (value >> 33)


def number_of_customers(rows):
    customers = 1024
    while customers * 32 <= rows:
        customers *= 2
    return customers


def groups_of(rows, customers):
    """Sum, maximum and number of the revenues that the filter leaves, of each customer."""
    groups = [(0, 0, 0)] * customers
    for row in range(rows):
        mixed = mix(row)
        key = mix(mixed ^ 11) % (customers + customers // 8)
        quantity, day = mix(mixed ^ 33) % 100, mix(mixed ^ 44) % 365
        if key < customers and quantity < 90 and 30 <= day < 330:
            revenue = mix(mixed ^ 22) % 10000 * quantity
            total, most, count = groups[key]
            groups[key] = total + revenue, max(most, revenue), count + 1
    return groups


def result(rows):
    customers = number_of_customers(rows)
    groups = groups_of(rows, customers)
    by_segment = [0] * SEGMENTS
    for key, (total, _, _) in enumerate(groups):
        by_segment[mix(key) % SEGMENTS] += total
    ranked = sorted(range(customers), key=lambda key: (-groups[key][0], key))
    values = by_segment + [groups[key][0] ^ mix(key) for key in ranked[:TOP]]
    hashes = (mix(mix(mix(key ^ total) ^ most) ^ count) for key, (total, most, count) in enumerate(groups))
    values.append(sum(hashes) & WORD)
    checksum = 0
    for value in values:
        checksum = (mix(checksum ^ value) + 1) & WORD
    return f"{checksum:016x}, top customer {ranked[0]} with {groups[ranked[0]][0]}"
