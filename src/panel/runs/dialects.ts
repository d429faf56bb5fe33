import type { IForeignHub } from '../../client/runs-api';

/** Stands for our own protocol where a dialect is chosen. */
export const OURS = 'megalens';

/** Hubs of peers that can be reached by address, by the name that the server and `hello.origin` give their dialect. */
export const DIALECTS: readonly { id: IForeignHub['dialect']; name: string }[] = [
  { id: '3606', name: 'Megatron-LM 3606' },
  { id: 'T1', name: 'MegatronApp training' },
  { id: 'T2', name: 'MegatronApp training, megascope-update' },
  { id: 'inference', name: 'MegatronApp inference' }
];
