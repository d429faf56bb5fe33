/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import { version } from '../version';

it('is one in package.json, here, in the changelog and in the citation', () => {
  const found = {
    package: JSON.parse(readFileSync('package.json', 'utf-8')).version,
    changes: readFileSync('CHANGELOG.md', 'utf-8').match(/^## (\S+?),/m)?.[1],
    citation: readFileSync('CITATION.cff', 'utf-8').match(/^version: (\S+)$/m)?.[1]
  };
  expect(found).toEqual({ package: version, changes: version, citation: version });
});
