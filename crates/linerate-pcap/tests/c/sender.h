/* Frames for the other end of a veth pair: UDP from 10.0.0.1 to 10.0.0.2, each to a port of its own. */
#ifndef SENDER_H
#define SENDER_H

#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static int sender;

/* On this end. */
static void open_sender(const char *interface)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET };

	sender = socket(AF_PACKET, SOCK_RAW, 0);
	address.sll_ifindex = if_nametoindex(interface);
	if (bind(sender, (struct sockaddr *)&address, sizeof(address)))
		perror("bind"), exit(2);
}

static void give(int port)
{
	unsigned char frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0,
				    0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
				    0x10, 0, port >> 8, port, 0, 26 };

	if (send(sender, frame, sizeof(frame), 0) != sizeof(frame))
		perror("send"), exit(2);
}

#endif
