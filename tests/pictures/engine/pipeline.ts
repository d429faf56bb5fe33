import '../../../src/engine/polyfills';
import { expose } from '../../../src/engine/pipe';
import { registerJob } from '../../../src/engine/jobs';
import { planPipeline } from '../../../src/instruments/pipeline/engine/pipeline-job';

registerJob('pipeline', planPipeline);
expose();
