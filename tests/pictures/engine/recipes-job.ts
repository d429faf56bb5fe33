import '../../../src/engine/polyfills';
import { expose } from '../../../src/engine/pipe';
import { registerJob } from '../../../src/engine/jobs';
import { recipes } from './recipes';

registerJob('recipes', recipes);
expose();
