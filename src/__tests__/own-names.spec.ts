/** @jest-environment ./jest.environment.node.js */
import { Linter } from 'eslint';
import * as parser from '@typescript-eslint/parser';
import ts from 'typescript';
import { ownNames } from '../../lint/own-names.mjs';

/** Lines of TypeScript that the rule reports. */
function reported(code: string): number[] {
  const file = '/names.ts';
  const source = ts.createSourceFile(file, code, ts.ScriptTarget.ES2022, true);
  const host: ts.CompilerHost = {
    ...ts.createCompilerHost({}),
    getSourceFile: (name, target) =>
      name === file ? source : ts.createSourceFile(name, ts.sys.readFile(name) ?? '', target, true)
  };
  const program = ts.createProgram([file], { lib: ['lib.es5.d.ts'], types: [], strict: true }, host);
  return new Linter({ cwd: '/' })
    .verify(
      code,
      [
        {
          files: ['**/*.ts'],
          languageOptions: { parser, parserOptions: { programs: [program] } },
          plugins: { megalens: { rules: { 'own-names': ownNames } } },
          rules: { 'megalens/own-names': 'error' }
        }
      ],
      file
    )
    .map(({ line, ruleId, message }) => (ruleId === null ? expect(message).toBe('') : line)) as number[];
}

it('the linter finds objects that are asked by a text, and nothing else', () => {
  const code = `declare const text: string, side: 'left' | 'right', at: number, odd: any;
declare const flags: Record<string, number>, sides: { left: 1; right: 2 }, list: number[], bytes: Uint8Array;
declare const map: Map<string, number>;
export const bad = [flags[text], flags[odd], (sides as any)[text], flags[\`\${at}-x\`]];
flags[text] = 1;
export const inherited = text in flags;
Object.assign(flags, sides);
export const good = [sides[side], sides['left'], list[at], bytes[at], map.get(text), 'left' in sides, text[at]];
`;
  expect(reported(code)).toEqual([4, 4, 4, 4, 5, 6, 7]);
});
