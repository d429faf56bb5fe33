import jupyter from '@jupyter/eslint-plugin';
import tseslint from 'typescript-eslint';
import { ownNames } from './lint/own-names.mjs';

export default tseslint.config(
  {
    ignores: [
      'node_modules/',
      '.make/',
      '.venv/',
      '**/lib/',
      'examples/extension/labextension/',
      'megalens/',
      'coverage/',
      '.demo/',
      '**/*.generated.ts',
      'ui-tests/test-results/',
      'ui-tests/**/*.bundle.js'
    ]
  },
  ...tseslint.configs.recommended,
  {
    files: ['src/**/*.{ts,tsx}', 'examples/extension/src/**/*.ts', 'ui-tests/**/*.ts', 'bench/**/*.ts'],
    plugins: { jupyter },
    rules: {
      '@typescript-eslint/naming-convention': [
        'error',
        { selector: 'interface', format: ['PascalCase'], custom: { regex: '^I?[A-Z]', match: true } }
      ],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-non-null-assertion': 'off',
      curly: ['error', 'all'],
      eqeqeq: 'error',
      '@typescript-eslint/no-unused-vars': ['error', { varsIgnorePattern: '^_', argsIgnorePattern: '^_' }],
      'no-console': 'error',
      'no-eval': 'error',
      'no-implied-eval': 'error',
      'no-new-func': 'error',
      'prefer-arrow-callback': 'error'
    }
  },
  {
    // Reads types, and so only what is shipped.
    files: ['src/**/*.{ts,tsx}'],
    ignores: ['src/**/__tests__/**'],
    languageOptions: { parserOptions: { project: './tsconfig.json', tsconfigRootDir: import.meta.dirname } },
    plugins: { megalens: { rules: { 'own-names': ownNames } } },
    rules: {
      'megalens/own-names': 'error',
      // A translated sentence stands in one piece.
      'max-len': [
        'error',
        { code: 110, ignoreStrings: true, ignoreTemplateLiterals: true, ignoreRegExpLiterals: true }
      ]
    }
  },
  {
    files: ['src/{plugins,panel,widgets}/**/*.{ts,tsx}', 'src/instruments/*/panel/**/*.{ts,tsx}'],
    plugins: { jupyter },
    rules: jupyter.configs.recommended[0].rules
  },
  {
    files: ['**/*.{js,mjs,cjs}'],
    rules: {
      '@typescript-eslint/no-unused-vars': ['error', { varsIgnorePattern: '^_', argsIgnorePattern: '^_' }]
    }
  },
  { files: ['ui-tests/**', 'bench/**', 'scripts/**'], rules: { 'no-console': 'off' } },
  { files: ['**/*.{js,cjs}'], rules: { '@typescript-eslint/no-require-imports': 'off' } }
);
