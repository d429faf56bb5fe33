/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import { version } from '../version';

it('names the version of package.json', () => {
  expect(version).toBe(JSON.parse(readFileSync('package.json', 'utf-8')).version);
});
