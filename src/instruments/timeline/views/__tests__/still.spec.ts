/** @jest-environment ./jest.environment.node.js */
import { checkStills } from '../../../../views/__tests__/still-checks';
import { PICTURED, picturedRun } from './pictured';

checkStills(PICTURED, picturedRun);
