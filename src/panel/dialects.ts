import type { Dialect } from '../client/runs-api';

/** The hubs that can be reached by address, by the name that the server and `hello.origin` give them. */
export const DIALECTS: readonly { id: Dialect; name: string }[] = [
  { id: 'megalens', name: 'Megalens' },
  { id: '3606', name: 'Megatron-LM 3606' },
  { id: 'T1', name: 'MegatronApp training' },
  { id: 'T2', name: 'MegatronApp training, megascope-update' },
  { id: 'inference', name: 'MegatronApp inference' }
];
