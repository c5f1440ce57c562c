/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the library's version, and what a session says on this machine. */
#include <pumpgraph/access_table.h>
#include <pumpgraph/pumpgraph.h>

#include <stdio.h>

int main(void) {
  printf("%s, headers %d.%d.%d\n", pumpgraph_version(), PUMPGRAPH_VERSION_MAJOR, PUMPGRAPH_VERSION_MINOR,
         PUMPGRAPH_VERSION_PATCH);
  pumpgraph_session_options options = {0};
  options.struct_size = sizeof options;
  options.budget_bytes = 1; /* too little, where there is a GPU */
  pumpgraph_session *session = NULL;
  pumpgraph_error error;
  const pumpgraph_status status = pumpgraph_session_create(&options, &session, &error);
  if (status == PUMPGRAPH_OK || error.message[0] == '\0')
    return 1;
  printf("status %d\n", (int)status);
  return 0;
}
