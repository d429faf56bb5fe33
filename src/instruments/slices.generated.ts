// Generated from the folders of src/instruments by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import { slice as generation } from './generation';
import { slice as monitor } from './monitor';
import { slice as pipeline } from './pipeline';
import { slice as timeline } from './timeline';
import type { IInstrumentSlice } from '../slice';

/** Every instrument that is here: see `IInstrumentSlice`. Nobody but the roots of pages and engines imports this. */
export const SLICES: readonly IInstrumentSlice[] = [generation, monitor, pipeline, timeline];
